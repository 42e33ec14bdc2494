"""Archives with weights in them, composed inside S3: S3 copies the weights' part, and the small files are uploaded.

A part is the beginning of an archive: gzip header and the weights as uncompressed tar members, flushed to a whole byte.
A tail is the end: the small files, tar's end and gzip's checksum over both, so part and tail are one gzip stream
(RFC 1951, RFC 1952). After a changed setting only a new tail is uploaded, not hundreds of megabytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .archive import BEST, Gzip, tar_of
from .errors import ArtifactError
from .weights import Revision

if TYPE_CHECKING:
    from collections.abc import Mapping

CRC = "cohost-crc32"
PLAIN_BYTES = "cohost-plain-bytes"
"""User metadata of a part: the checksum and the length of its decompressed bytes."""

_MEMBER = "/weights"
"""A name that `pack` refuses for a file, so that the weights cannot be written as a member by mistake."""
_REVISION = re.compile(r"(?P<model>[^@]+)@(?P<revision>[0-9a-f]{40})")


@dataclass(frozen=True, kw_only=True)
class Part:
    """The object in S3 that holds an archive's weights as the beginning of an archive."""

    bucket: str
    key: str


def with_part(files: Mapping[str, bytes], revision: Revision, bucket: str) -> dict[str, bytes]:
    """Add the location of an archive's weights to its files, so that it counts as content like any file."""
    return {**files, _MEMBER: f"{bucket}/{revision.packed}".encode()}


def part_of(files: Mapping[str, bytes]) -> Part | None:
    """Return the weights of an archive; None if it holds small files only."""
    if _MEMBER not in files:
        return None
    bucket, _, key = files[_MEMBER].decode().partition("/")
    return Part(bucket=bucket, key=key)


def tail(files: Mapping[str, bytes], metadata: Mapping[str, str]) -> bytes:
    """Return the end of an archive whose beginning has this metadata: small files, tar's end, and gzip's trailer.

    Raises:
        ArtifactError: the metadata is not that of a part.
    """
    try:
        checksum, size = int(metadata[CRC]), int(metadata[PLAIN_BYTES])
    except (KeyError, ValueError) as error:
        raise ArtifactError(
            "weights-part-foreign", "weights", "their part was not written by `cohost weights push`", fix="run it again"
        ) from error
    plain = tar_of({name: content for name, content in files.items() if name != _MEMBER})
    gzip = Gzip(BEST, checksum=checksum, size=size)
    return gzip.compress(plain) + gzip.finish()


def packed_revisions(properties: Mapping[str, Any]) -> dict[str, Revision]:
    """Return the weights that a resource's properties put inside archives, by model name.

    Raises:
        ArtifactError: PackedWeights is not a map of `model id@revision` by model name.
    """
    packed = properties.get("PackedWeights", {})
    found = {name: _REVISION.fullmatch(str(text)) for name, text in packed.items()} if isinstance(packed, dict) else {}
    models = properties.get("Models")
    wrong = [name for name, match in found.items() if match is None or name not in (models or {})]
    if wrong or not isinstance(packed, dict):
        raise ArtifactError(
            "packed-weights",
            "PackedWeights",
            f"got {', '.join(map(ascii, wrong))}" if wrong else "is not a map",
            allowed="`model id@revision` by the name of a model",
            fix="deploy the stack from one checkout",
        )
    return {name: Revision(match["model"], match["revision"]) for name, match in found.items() if match is not None}
