"""The rules that all sections share: unknown keys are rejected, single values have the form that AWS and DJL accept.

Each check returns its value unchanged or raises ValueError with `what is wrong; allowed: …; fix: …`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from cohost.archives.known_keys import KNOWN_KEYS, nearest
from cohost.catalog import check_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INSTANCE_TYPE: Final = r"^ml\.[a-z0-9-]+\.[a-z0-9]+$"
IMAGE: Final = r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
"""`repository:tag` of an AWS deep learning container."""
EMAIL: Final = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
EMAIL_CHARACTERS: Final = 254

KMS_KEY: Final = "the ARN of a KMS key: arn:aws:kms:REGION:ACCOUNT:key/ID; an alias has no rights of its own"

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
TAGS = 50
PREFIX_CHARACTERS = 512
"""The limit of a prefix: an S3 key holds 1024 bytes, and generation, name and `.tar.gz` follow the prefix."""

FIELDS_OF_KEYS: Mapping[str, str] = {
    "engine": "always Python",
    "option.model_id": "model_id",
    "option.task": "task",
    "option.revision": "revision",
    "option.rolling_batch": "always disable for encoders",
    "option.dtype": "dtype",
    "option.async_mode": "handler",
    "option.entryPoint": "handler",
    "option.trust_remote_code": "trust_remote_code",
    "option.tensor_parallel_degree": "tensor_parallel_degree",
    "gpu.minWorkers": "gpu.minWorkers",
    "gpu.maxWorkers": "gpu.maxWorkers",
    "gpu.required_memory_mb": "gpu.required_memory_mb",
    "cpu.minWorkers": "cpu.minWorkers",
    "cpu.maxWorkers": "cpu.maxWorkers",
    "required_memory_mb": "required_memory_mb",
    "reserved_memory_mb": "reserved_memory_mb",
    "batch_size": "batch_size",
    "max_batch_delay": "max_batch_delay",
    "max_idle_time": "max_idle_time",
    "job_queue_size": "job_queue_size",
}
"""DJL Serving keys that the catalog writes itself, and the catalog field that sets each."""


class Settings(BaseModel):
    """Base of all parts of a catalog: immutable, with unknown keys rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def check_endpoint_name(name: str) -> str:
    """Check that SageMaker accepts an endpoint's name (API reference: CreateEndpoint)."""
    if not SAGEMAKER_NAME_PATTERN.fullmatch(name):
        refuse(repr(name), SAGEMAKER_NAME, "rename the endpoint")
    return name


def check_model_id(model_id: str) -> str:
    """Check that the container can fetch weights by a model id."""
    if not (_HUB_ID.fullmatch(model_id) or _S3_PREFIX.fullmatch(model_id)):
        hint = "end the s3:// address with /" if model_id.startswith("s3://") else "copy the id from the model's page"
        refuse(repr(model_id), MODEL_ID, hint)
    return model_id


def check_prefix(prefix: str) -> str:
    """Check that SageMaker can append a TargetModel to a prefix."""
    allowed = (
        f"at most {PREFIX_CHARACTERS} letters, digits and !_.*'()-, parts set apart by single /, with / at the end only"
    )
    if not prefix.endswith("/"):
        refuse(repr(prefix), "a prefix that ends with /", f"write {prefix + '/'!r}")
    parts = prefix[:-1].split("/")
    if not _PREFIX_CHARACTERS.fullmatch(prefix) or len(prefix) > PREFIX_CHARACTERS or {"", ".", ".."} & set(parts):
        refuse(repr(prefix), allowed, "take out what is not allowed")
    return prefix


def check_environment(environment: dict[str, str]) -> dict[str, str]:
    """Check that an environment fits SageMaker's limits and holds no secret: DescribeModel shows it in plain text."""
    for name, value in environment.items():
        if not _ENVIRONMENT_NAME.fullmatch(name):
            refuse(f"the variable {name!r}", "letters, digits and _, not starting with a digit", "rename it")
        if _SECRET_WORDS.search(name):
            refuse(
                f"the variable {name!r}",
                "no secrets, because everybody who may describe the model reads them",
                "copy gated weights to s3:// and name that as model_id",
            )
        if max(len(name.encode()), len(value.encode())) > ENVIRONMENT_VALUE_BYTES:
            refuse(
                f"the variable {name!r} of {len(value.encode())} bytes",
                f"{ENVIRONMENT_VALUE_BYTES} bytes",
                "shorten it",
            )
    total = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if total > ENVIRONMENT_BYTES:
        refuse(f"an environment of {total} bytes", f"{ENVIRONMENT_BYTES} bytes in all", "take variables out")
    return environment


def check_tags(tags: dict[str, str]) -> dict[str, str]:
    """Check that every tagged service of the stack accepts the tags (AWS tagging reference)."""
    if len(tags) > TAGS:
        refuse(f"{len(tags)} tags", f"at most {TAGS}", "take tags out")
    for key, value in tags.items():
        if not key or key.lower().startswith("aws:") or len(key) > TAG_KEY_CHARACTERS:
            refuse(f"the tag key {key!r}", f"1 to {TAG_KEY_CHARACTERS} characters, not starting with aws:", "rename it")
        if len(value) > TAG_VALUE_CHARACTERS or not _TAG_CHARACTERS.fullmatch(key + value):
            refuse(
                f"the tag {key!r}: {value!r}",
                f"letters, digits, blanks and _.:/=+-@, {TAG_VALUE_CHARACTERS} characters a value",
                "reword it",
            )
    return tags


def check_acknowledged(reasons: dict[str, str]) -> dict[str, str]:
    """Check that each acknowledged warning exists and has a reason that a reviewer can read."""
    for name, reason in reasons.items():
        if name not in check_ids.WARNINGS:
            kind = "an error, which no reason makes work" if name in check_ids.ERRORS else "no check"
            refuse(f"{name!r} is {kind}; it", ", ".join(check_ids.WARNINGS), "see docs/checks.md")
        if not reason.strip():
            refuse(f"{name!r} without a reason", "a sentence that says why it does no harm here", "write one")
    return reasons


def check_properties(properties: dict[str, str]) -> dict[str, str]:
    """Check `properties`: no key that the catalog sets itself, none misspelt, no text that CDK loses."""
    faults = [fault for key, value in properties.items() for fault in _property_faults(key, value)]
    if faults:
        raise ValueError(" | ".join(faults))
    return properties


def _property_faults(key: str, value: str) -> Iterator[str]:
    if key in FIELDS_OF_KEYS:
        yield f"{key!r} has a field of its own; allowed there: {FIELDS_OF_KEYS[key]}; fix: use that field"
    elif key not in KNOWN_KEYS and (close := nearest(key)):
        yield f"{key!r} is unknown; allowed: the keys of DJL Serving; fix: did you mean {close!r}?"
    if value != value.strip():
        yield f"{key!r}: {value!r} has a blank at an end, which Java keeps as part of the value; fix: remove it"
    if not (key + value).isascii() or not (key + value).isprintable():
        yield (
            f"{key!r}: {value!r} has characters outside printable ASCII; allowed: printable ASCII, since `cdk diff` "
            "leaves out changes in other text; fix: write it in ASCII"
        )


def warnings_of(name: str, properties: Mapping[str, str]) -> list[str]:
    """Return one line for each key of `properties` that this version does not know."""
    return [
        f"models.{name}.properties.{key}: unknown to this version; written as it stands"
        for key in properties
        if key not in KNOWN_KEYS
    ]


def check_handler_settings(handler: str, *, batched: bool, dtype: str | None, batching: list[str]) -> None:
    """Check that an entry has no setting that its handler does not read."""
    if handler == "batched":
        if batching:
            refuse(
                f"{' and '.join(batching)} with handler batched",
                "batching by the server with handler stock only",
                "take it out; the handler forms batches itself, see max_batch_tokens under `batched`",
            )
        return
    if batched:
        refuse(f"`batched` with handler {handler}", "`batched` with handler batched only", "write handler: batched")
    if dtype in {"auto", "tf32"}:
        refuse(f"dtype {dtype!r} with handler {handler}", "fp32, fp16 or bf16", "choose one, or leave dtype out")


def refuse(what: str, allowed: str, fix: str) -> NoReturn:
    """Reject a value.

    Raises:
        ValueError: always; the text states the problem, the allowed values and the fix.
    """
    msg = f"{what} is not allowed; allowed: {allowed}; fix: {fix}"
    raise ValueError(msg)
