"""Checks that all sections of a catalog share: unknown keys, and values whose form AWS or DJL Serving would reject.

Each check of a value in the catalog rejects a wrong value with `refuse`, and returns an accepted value unchanged or
returns nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cohost.archives.handlers import ENGINE_HANDLERS
from cohost.archives.known_keys import KNOWN_KEYS, nearest
from cohost.catalog import check_ids
from cohost.errors import InvalidValueError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_core import InitErrorDetails

INSTANCE_TYPE: Final = r"^ml\.[a-z0-9-]+\.[a-z0-9]+$"
IMAGE: Final = r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
"""The pattern of `repository:tag` of an AWS deep learning container."""
EMAIL: Final = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
EMAIL_CHARACTERS: Final = 254

KMS_KEY: Final = "the ARN of a KMS key (arn:aws:kms:REGION:ACCOUNT:key/ID), not of an alias"

KmsKey = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$")]

SAGEMAKER_NAME = "1 to 63 letters, digits and single hyphens, starting and ending with a letter or digit"
MODEL_ID = "a Hub id such as org/name, or s3://bucket/prefix/"

SAGEMAKER_NAME_PATTERN = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_S3_PREFIX = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[\x21-\x7e]+/")
_ENVIRONMENT_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SECRET_WORDS = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
_PREFIX_CHARACTERS = re.compile(r"[A-Za-z0-9!_.*'()/-]+")
_TAG_CHARACTERS = re.compile(r"[\w\s.:/=+@-]*")

ENVIRONMENT_VALUE_BYTES = 1024
ENVIRONMENT_BYTES = 32 * 1024
TAG_KEY_CHARACTERS = 128
TAG_VALUE_CHARACTERS = 256
TAGS = 49
"""The most tags in a catalog: AWS allows 50 on a resource, and the stack adds one tag of its own."""
PREFIX_CHARACTERS = 512
"""The limit of a prefix: an S3 key has at most 1024 bytes, and generation, name and `.tar.gz` follow the prefix."""

FIELDS_OF_KEYS: Mapping[str, str] = {
    "engine": "always Python",
    "option.model_id": "model_id",
    "option.task": "task",
    "option.revision": "revision",
    "option.rolling_batch": "always disable for encoders",
    "option.dtype": "dtype",
    "option.async_mode": "handler",
    "option.entryPoint": "handler",
    "option.catalog_name": "the model's name",
    "option.shared": "handler",
    "option.share": "shared.share",
    "option.engines_per_device": "endpoint.engines_per_device",
    "option.trust_remote_code": "trust_remote_code",
    "option.tensor_parallel_degree": "tensor_parallel_degree",
    "gpu.minWorkers": "gpu.minWorkers",
    "gpu.maxWorkers": "gpu.maxWorkers",
    "gpu.required_memory_mb": "gpu.required_memory_mb",
    "gpu.reserved_memory_mb": "gpu.reserved_memory_mb",
    "cpu.minWorkers": "cpu.minWorkers",
    "cpu.maxWorkers": "cpu.maxWorkers",
    "required_memory_mb": "required_memory_mb",
    "reserved_memory_mb": "reserved_memory_mb",
    "batch_size": "batch_size",
    "max_batch_delay": "max_batch_delay",
    "max_idle_time": "max_idle_time",
    "job_queue_size": "job_queue_size",
}
"""The catalog field by DJL Serving key, for keys that must not be stated under `properties`."""


class Settings(BaseModel):
    """The base class of all parts of a catalog: immutable, with unknown keys rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def check_endpoint_name(name: str) -> str:
    """Check that SageMaker accepts an endpoint's name (API reference: CreateEndpoint)."""
    if not SAGEMAKER_NAME_PATTERN.fullmatch(name):
        refuse("name-not-allowed", f"got {name!r}", allowed=SAGEMAKER_NAME, fix="rename the endpoint")
    return name


def check_model_id(model_id: str) -> str:
    """Check that a model id has the form of a Hub id or of an S3 prefix, from which the container fetches weights."""
    if not (_HUB_ID.fullmatch(model_id) or _S3_PREFIX.fullmatch(model_id)):
        fix = "end the s3:// address with /" if model_id.startswith("s3://") else "copy the id from the model's page"
        refuse("value-not-allowed", f"got {model_id!r}", allowed=MODEL_ID, fix=fix)
    return model_id


def check_prefix(prefix: str) -> str:
    """Check an S3 prefix's characters, and that it ends with "/", so that SageMaker can append a TargetModel."""
    if not prefix.endswith("/"):
        allowed, fix = "a prefix that ends with /", f"write {prefix + '/'!r}"
        refuse("value-not-allowed", f"got {prefix!r}", allowed=allowed, fix=fix)
    parts = prefix[:-1].split("/")
    if not _PREFIX_CHARACTERS.fullmatch(prefix) or len(prefix) > PREFIX_CHARACTERS or {"", ".", ".."} & set(parts):
        allowed = (
            f"at most {PREFIX_CHARACTERS} letters, digits and !_.*'()-, parts set apart by single /, with / at the end "
            "only"
        )
        refuse("value-not-allowed", f"got {prefix!r}", allowed=allowed, fix="remove the other characters")
    return prefix


def each(check: Callable[[str, str], None]) -> AfterValidator:
    """Return a validator that applies a check to every entry of a mapping, and reports each fault at the entry's key.

    Args:
        check: the check, which takes an entry's key and value and rejects them with `refuse`.
    """

    def checked(entries: dict[str, str]) -> dict[str, str]:
        faults: list[InitErrorDetails] = []
        for key, value in entries.items():
            try:
                check(key, value)
            except InvalidValueError as error:
                faults.append({"type": "value_error", "loc": (key,), "input": value, "ctx": {"error": error}})
        if faults:
            raise ValidationError.from_exception_data("entries", faults)
        return entries

    return AfterValidator(checked)


def check_variable(name: str, value: str) -> None:
    """Check that an environment variable fits SageMaker's limits, and that its name is not that of a secret.

    DescribeModel shows the container's environment variables in plain text.
    """
    if not _ENVIRONMENT_NAME.fullmatch(name):
        allowed = "letters, digits and _, not starting with a digit"
        refuse("name-not-allowed", "is not the name of a variable", allowed=allowed, fix="rename it")
    if _SECRET_WORDS.search(name):
        refuse(
            "secret-not-allowed",
            "has the name of a secret",
            allowed="no secrets, because DescribeModel shows them",
            fix="copy gated weights to s3:// and name that as model_id",
        )
    if (size := max(len(name.encode()), len(value.encode()))) > ENVIRONMENT_VALUE_BYTES:
        refuse("value-too-large", f"has {size} bytes", allowed=f"{ENVIRONMENT_VALUE_BYTES} bytes", fix="shorten it")


def check_environment_size(environment: dict[str, str]) -> dict[str, str]:
    """Check that all environment variables together fit SageMaker's limit in bytes."""
    total = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if total > ENVIRONMENT_BYTES:
        refuse(
            "value-too-large", f"has {total} bytes", allowed=f"{ENVIRONMENT_BYTES} bytes in all", fix="take some out"
        )
    return environment


def check_tag(key: str, value: str) -> None:
    """Check that a tag is accepted by every AWS service with tagged resources in the stack (AWS tagging reference)."""
    if not key or key.lower().startswith("aws:") or len(key) > TAG_KEY_CHARACTERS:
        allowed = f"keys of 1 to {TAG_KEY_CHARACTERS} characters, not starting with aws:"
        refuse("name-not-allowed", f"got the key {key!r}", allowed=allowed, fix="rename it")
    if len(value) > TAG_VALUE_CHARACTERS or not _TAG_CHARACTERS.fullmatch(key + value):
        allowed = f"letters, digits, blanks and _.:/=+-@, {TAG_VALUE_CHARACTERS} characters a value"
        refuse("value-not-allowed", f"got {value!r}", allowed=allowed, fix="reword it")


def check_number_of_tags(tags: dict[str, str]) -> dict[str, str]:
    """Check that AWS services accept this many tags on a resource of the stack (AWS tagging reference)."""
    if len(tags) > TAGS:
        refuse("value-too-large", f"has {len(tags)} tags", allowed=f"at most {TAGS}", fix="take tags out")
    return tags


def check_acknowledged(name: str, reason: str) -> None:
    """Check an entry of `acknowledge`: its key is the id of a warning, and its value states a reason."""
    if name not in check_ids.WARNINGS:
        problem = "is an error, which cannot be acknowledged" if name in check_ids.ERRORS else "is not a check"
        refuse("check-unknown", problem, allowed=", ".join(check_ids.WARNINGS), fix="take it out (docs/checks.md)")
    if not reason.strip():
        refuse("value-empty", "has no reason", allowed="a sentence: why the warning is acceptable", fix="write one")


def check_property(key: str, value: str) -> None:
    """Check an entry of `properties`.

    The key must not be one that another field of the catalog sets, and must not be misspelt. The text must be printable
    ASCII, since `cdk diff` does not show changes in other text.
    """
    if key in FIELDS_OF_KEYS:
        refuse("key-not-allowed", "is set by another field", allowed=FIELDS_OF_KEYS[key], fix="use that field")
    if key not in KNOWN_KEYS and (close := nearest(key)):
        refuse("key-unknown", "is not a key", allowed="the keys of DJL Serving", fix=f"write {close!r}")
    if value != value.strip():
        problem = f"{value!r} has a blank at an end, which Java keeps as part of the value"
        refuse("value-not-allowed", problem, fix="remove it")
    if not (key + value).isascii() or not (key + value).isprintable():
        refuse(
            "value-not-allowed",
            f"got {value!r}",
            allowed="printable ASCII, since `cdk diff` leaves out changes in other text",
            fix="write it in ASCII",
        )


def warnings_of(name: str, properties: Mapping[str, str]) -> list[str]:
    """Return one warning for each key of a model's `properties` that this version of cohost does not know."""
    return [
        f"models.{name}.properties.{key}: unknown to this version; written unchanged"
        for key in properties
        if key not in KNOWN_KEYS
    ]


def check_handler_settings(handler: str, *, sections: list[str], dtype: str | None, batching: list[str]) -> None:
    """Check that a model's entry has no setting that its handler does not read.

    `sections` are the names of the handlers whose settings the entry has.
    """
    for section in sections:
        if section != handler:
            refuse(
                "settings-conflict",
                f"has `{section}` with handler {handler}",
                allowed=f"`{section}` with handler {section} only",
                fix=f"write handler: {section}, or take `{section}` out",
            )
    if handler in ENGINE_HANDLERS:
        if batching:
            refuse(
                "settings-conflict",
                f"has {' and '.join(batching)} with handler {handler}",
                allowed="batching by the server with handler stock only",
                fix=f"take it out; the handler forms batches itself, see max_batch_tokens under `{handler}`",
            )
    elif dtype in {"auto", "tf32"}:
        refuse(
            "settings-conflict",
            f"has dtype {dtype} with handler {handler}",
            allowed="fp32, fp16 or bf16",
            fix="choose one, or leave dtype out",
        )


def check_shared(dtype: str | None, tensor_parallel_degree: int, *, own_code: bool) -> None:
    """Check that a model with `handler: shared` changes nothing for the other models of its engine process."""
    if own_code:
        refuse(
            "settings-conflict",
            "has trust_remote_code with handler shared, and one model's own code could change the answers of all",
            allowed="trust_remote_code with handler stock or batched",
            fix="write handler: batched for this model, whose engine process has no other model",
        )
    if dtype == "tf32":
        refuse(
            "settings-conflict",
            "has dtype tf32 with handler shared, and torch has one setting of TF32 for the whole engine process",
            allowed="fp32, fp16, bf16 or auto",
            fix="choose one, or write handler: batched for this model",
        )
    if tensor_parallel_degree > 1:
        refuse(
            "settings-conflict",
            f"has tensor_parallel_degree {tensor_parallel_degree} with handler shared, whose engine process has one "
            "device",
            allowed="1",
            fix="take tensor_parallel_degree out",
        )
