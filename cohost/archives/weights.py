"""The S3 keys of pushed weights, and the references to them in an archive's properties.

`weights/<model id>/<revision>/<file>` is one of the model's files, which the container fetches.
`manifests/<model id>/<revision>.json` is written after all files, so an incomplete upload has no manifest.
`packed/<model id>/<revision>.part` contains the same files as the beginning of an archive (packed.py).

The name of the weights bucket contains the account id, which is not known when a template is written. Properties
therefore contain `s3://{WeightsBucket}/weights/…`, and the code that packs an archive fills in the bucket's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACEHOLDER = "{WeightsBucket}"
WEIGHTS = "weights/"
MANIFESTS = "manifests/"
PACKED = "packed/"
MODEL_ID = "option.model_id"

_SUFFIX = ".json"
_LOCATION = re.compile(rf"s3://{re.escape(PLACEHOLDER)}/{WEIGHTS}(?P<model>[^/]+(?:/[^/]+)?)/(?P<revision>[^/]+)/")
_MANIFEST = re.compile(rf"{MANIFESTS}(?P<model>[^/]+(?:/[^/]+)?)/(?P<revision>[^/]+){re.escape(_SUFFIX)}")
_PART = re.compile(rf"{PACKED}(?P<model>[^/]+(?:/[^/]+)?)/(?P<revision>[0-9a-f]{{40}})\.part")
_BELOW_WEIGHTS = re.compile(rf"{WEIGHTS}(?P<model>[^/]+(?:/[^/]+)?)/(?P<revision>[0-9a-f]{{40}})/.*")


@dataclass(frozen=True, order=True)
class Revision:
    """One revision of one model, which determines the keys of its weights; `revision` is a commit's 40 hex digits."""

    model_id: str
    revision: str

    @property
    def prefix(self) -> str:
        """Return the key prefix of the model's files; it ends with "/"."""
        return f"{WEIGHTS}{self.model_id}/{self.revision}/"

    @property
    def manifest(self) -> str:
        """Return the key of the manifest, an object that exists only if all files were uploaded."""
        return f"{MANIFESTS}{self.model_id}/{self.revision}{_SUFFIX}"

    @property
    def packed(self) -> str:
        """Return the key of the object that holds the model's files as the beginning of an archive."""
        return f"{PACKED}{self.model_id}/{self.revision}.part"

    @property
    def location(self) -> str:
        """Return the value of `option.model_id`, in which a placeholder stands for the bucket's name."""
        return f"s3://{PLACEHOLDER}/{self.prefix}"

    def uri(self, bucket: str) -> str:
        """Return the S3 URI of the model's files in a bucket."""
        return f"s3://{bucket}/{self.prefix}"

    def __str__(self) -> str:
        """Return `org/name@revision`, for messages."""
        return f"{self.model_id}@{self.revision}"


def revision_in(properties: Mapping[str, str]) -> Revision | None:
    """Return the revision of the pushed weights in `option.model_id`, with a placeholder for the bucket's name.

    Return None if `option.model_id` names other weights.
    """
    return _parsed(_LOCATION, properties.get(MODEL_ID, ""))


def revision_at(uri: str, bucket: str) -> Revision | None:
    """Return the revision of the pushed weights that an archive's `option.model_id` names; None for other locations."""
    below = uri.removeprefix(f"s3://{bucket}/")
    return None if below == uri else revision_of_key(below)


def revision_of_key(key: str) -> Revision | None:
    """Return the revision to which the object at a key belongs (file, manifest or packed part); None for other keys."""
    return _parsed(_BELOW_WEIGHTS, key) or _parsed(_MANIFEST, key) or _parsed(_PART, key)


def with_bucket(properties: Mapping[str, str], bucket: str | None) -> dict[str, str]:
    """Return properties with the bucket's name in place of the placeholder in `option.model_id`.

    Raises:
        ArtifactError: the properties have the placeholder, and no bucket is given.
    """
    if revision_in(properties) is None:
        return dict(properties)
    if not bucket:
        raise ArtifactError(
            "weights-bucket-missing",
            "WeightsBucket",
            f"is missing, and {MODEL_ID}={properties[MODEL_ID]} needs it",
            allowed="the name of the bucket that `cohost weights push` uploads to",
            fix="set it",
        )
    return {**properties, MODEL_ID: properties[MODEL_ID].replace(PLACEHOLDER, bucket)}


def _parsed(pattern: re.Pattern[str], text: str) -> Revision | None:
    found = pattern.fullmatch(text)
    return Revision(found["model"], found["revision"]) if found else None
