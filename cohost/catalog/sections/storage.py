"""The catalog's settings for the sources of weights, and its section `storage` for the bucket of archives.

Each model can state its own source of weights (`ModelSource`). The catalog states the source for all models that state
none (`WeightsSettings`), and the storage of published archives (`Storage`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cohost.catalog.sections.rules import KMS_KEY, MODEL_ID, KmsKey, Settings, check_model_id, check_prefix
from cohost.errors import refuse

BUCKET_NAME = "a bucket's name: 3 to 63 small letters, digits, hyphens and dots"
TOKEN_SOURCE = "secretsmanager:NAME or ssm:NAME, the token's location"  # noqa: S105 - a location, not a token
_WEIGHTS = "hub (fetched from the Hub by the container), s3 or archive (both pushed with `cohost weights push`)"

_S3 = "s3://"
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_TOKEN_SOURCE = re.compile(r"(?:secretsmanager|ssm):[\w/+=.@:-]{1,2048}", re.ASCII)


def check_bucket_name(name: str) -> str:
    """Return a bucket's name if S3 accepts it, else reject it."""
    if not _BUCKET_NAME.fullmatch(name):
        fix = "name a bucket, without s3:// and without a path"
        refuse("name-not-allowed", f"got {name!r}", allowed=BUCKET_NAME, fix=fix)
    return name


def check_token_source(source: str) -> str:
    """Return the location of a Hub token; an error never shows the given text, since it may be the token itself.

    Raises:
        InvalidValueError: the text names neither a secret of Secrets Manager nor a parameter of Parameter Store.
    """
    if not _TOKEN_SOURCE.fullmatch(source):
        refuse(
            "token-source-unknown",
            "got a text that is not shown, in case it is the token itself",
            allowed=TOKEN_SOURCE,
            fix="put the token into Secrets Manager or Parameter Store, and name that",
        )
    return source


BucketName = Annotated[str, AfterValidator(check_bucket_name)]
TokenSource = Annotated[str, AfterValidator(check_token_source)]
Weights = Literal["hub", "s3", "archive"]
_PUSHED = ("s3", "archive")


class ModelSource(Settings):
    """The settings of one model's entry that state the source of the model's weights."""

    model_id: Annotated[str, AfterValidator(check_model_id)] = Field(description=MODEL_ID)
    revision: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{40}$",
        description="the 40 hexadecimal digits of a commit in the model's repository (a branch name can move)",
    )
    weights: Weights | None = Field(default=None, description=_WEIGHTS)
    allow_pickle: bool = Field(default=False, description="true or false")
    gated: bool = Field(default=False, description="true (the Hub requires a token) or false")

    @property
    def from_hub(self) -> bool:
        """Return True if the container fetches the model's weights from the Hugging Face Hub."""
        return not self.pushed and not self.model_id.startswith(_S3)

    @property
    def pushed(self) -> bool:
        """Return True if `cohost weights push` uploads the model's weights to S3."""
        return self.weights in _PUSHED

    @model_validator(mode="after")
    def _address_says_all(self) -> ModelSource:
        if not self.model_id.startswith(_S3):
            return self
        if self.revision is not None:
            refuse(
                "settings-conflict",
                f"has revision {self.revision} with weights from {self.model_id}",
                allowed="a revision with a Hub id only",
                fix="leave revision out and put the weights under a separate prefix",
            )
        if self.weights is not None:
            refuse(
                "settings-conflict",
                f"has weights: {self.weights} with model_id {self.model_id}",
                allowed="weights with a Hub id",
                fix="leave weights out, since model_id is their location",
            )
        return self

    @model_validator(mode="after")
    def _pushed_or_fetched(self) -> ModelSource:
        if self.pushed:
            if self.revision is None:
                refuse(
                    "revision-missing",
                    f"has weights: {self.weights} without a revision",
                    allowed="a model with its revision, since each revision has its own keys in the bucket",
                    fix="revision: the 40 digits of the commit that you tested",
                )
            return self
        if self.allow_pickle:
            refuse(
                "settings-conflict",
                "has allow_pickle without weights: s3 or archive",
                allowed="allow_pickle for weights that are pushed to S3",
                fix="take it out",
            )
        if self.gated:
            refuse(
                "settings-conflict",
                "has gated: true with weights that the container fetches",
                allowed="weights: s3, since DescribeModel shows the container's environment, and with it any token",
                fix="weights: s3, and `cohost weights push` with a token (hub_token, --token-from or HF_TOKEN)",
            )
        return self


class WeightsSettings(Settings):
    """The catalog's keys `weights` and `hub_token`: the source of weights of all models that state no source."""

    weights: Weights = Field(default="hub", description=_WEIGHTS)
    hub_token: TokenSource | None = Field(default=None, description=TOKEN_SOURCE)

    @model_validator(mode="before")
    @classmethod
    def _weights_by_default(cls, data: Any) -> Any:  # the unchecked content of the file
        if (
            not isinstance(data, Mapping)
            or not isinstance(data.get("models"), Mapping)
            or data.get("weights") not in _PUSHED
        ):
            return data
        weights = data["weights"]
        return {**data, "models": {name: _with_default(entry, weights) for name, entry in data["models"].items()}}


def _with_default(entry: object, weights: str) -> object:
    """Return a model's entry with the catalog's source of weights, unless the entry states a source or S3 location."""
    if not isinstance(entry, Mapping) or "weights" in entry or str(entry.get("model_id", "")).startswith(_S3):
        return entry
    return {**entry, "weights": weights}


class Storage(Settings):
    """The catalog's section `storage`: prefix, retention and removal policy of archives, and the weights bucket."""

    prefix: Annotated[str, AfterValidator(check_prefix)] = Field(
        default="encoder-serving/lmi/04-lmi/", description="an S3 prefix that ends with / and does not start with /"
    )
    keep_generations: int = Field(
        default=2, ge=0, le=50, description="0 to 50 generations; with 0, a replaced generation is removed at once"
    )
    on_destroy: Literal["delete", "keep"] = Field(
        default="delete", description="delete (the bucket is deleted with the stack) or keep"
    )
    weights_bucket: BucketName | None = Field(default=None, description=BUCKET_NAME)
    weights_kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
