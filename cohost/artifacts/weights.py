"""Where weights lie that were pushed to S3, and how an archive's properties name them.

weights/<model id>/<revision>/<file>        the model's files, which the container fetches
manifests/<model id>/<revision>.json        written when all of them are there, so never for half an upload
packed/<model id>/<revision>.part           the same files as the beginning of an archive (packed.py)

The bucket's name holds the account's number, which is not known when a template is written. Properties therefore say
`s3://{WeightsBucket}/weights/…`, and whoever packs an archive puts the name in.
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
    """One revision of one model: all that its keys are made of. `revision` is a commit, 40 hex digits."""

    model_id: str
    revision: str

    @property
    def prefix(self) -> str:
        """The prefix of its files; ends with "/"."""
        return f"{WEIGHTS}{self.model_id}/{self.revision}/"

    @property
    def manifest(self) -> str:
        """The key that says that all of its files are there."""
        return f"{MANIFESTS}{self.model_id}/{self.revision}{_SUFFIX}"

    @property
    def packed(self) -> str:
        """The key of the same files as the beginning of an archive."""
        return f"{PACKED}{self.model_id}/{self.revision}.part"

    @property
    def location(self) -> str:
        """What `option.model_id` says before the bucket is put in."""
        return f"s3://{PLACEHOLDER}/{self.prefix}"

    def uri(self, bucket: str) -> str:
        """Where its files lie."""
        return f"s3://{bucket}/{self.prefix}"

    def __str__(self) -> str:
        """For messages: `org/name@revision`."""
        return f"{self.model_id}@{self.revision}"


def revision_in(properties: Mapping[str, str]) -> Revision | None:
    """The pushed weights that properties name, before the bucket is put in; None where they name others."""
    return _parsed(_LOCATION, properties.get(MODEL_ID, ""))


def revision_at(uri: str, bucket: str) -> Revision | None:
    """The pushed weights that an archive's `option.model_id` names; None for any other place."""
    below = uri.removeprefix(f"s3://{bucket}/")
    return None if below == uri else revision_of_key(below)


def revision_of_key(key: str) -> Revision | None:
    """The revision that an object belongs to: a file of it, its manifest or its part; None for any other object."""
    return _parsed(_BELOW_WEIGHTS, key) or _parsed(_MANIFEST, key) or _parsed(_PART, key)


def with_bucket(properties: Mapping[str, str], bucket: str | None) -> dict[str, str]:
    """The properties with the bucket's name where they leave room for it.

    Raises:
        ArtifactError: they do, and no bucket is given.
    """
    if revision_in(properties) is None:
        return dict(properties)
    if not bucket:
        raise ArtifactError(
            f"WeightsBucket: is missing; {MODEL_ID}={properties[MODEL_ID]} needs the name of the bucket that "
            "`cohost weights push` uploads to; set it"
        )
    return {**properties, MODEL_ID: properties[MODEL_ID].replace(PLACEHOLDER, bucket)}


def _parsed(pattern: re.Pattern[str], text: str) -> Revision | None:
    found = pattern.fullmatch(text)
    return Revision(found["model"], found["revision"]) if found else None
