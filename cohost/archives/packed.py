"""Archives with weights inside them, composed from two pieces: a part that S3 copies, and a tail that is uploaded.

The part is the archive's beginning: the gzip header and the weights as uncompressed tar members; it ends on a byte
boundary, so that the tail can follow. The tail is the archive's end: the small files, the end of the tar, and gzip's
checksum of part and tail. Part and tail together are one gzip stream (RFC 1951, RFC 1952). If a setting changes, only a
new tail is uploaded, not hundreds of megabytes of weights.
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
"""The user metadata keys of a part's CRC-32 and of its length, both of the decompressed bytes."""

_MEMBER = "/weights"
"""The name for the location of the weights; `pack` refuses it, so the location cannot become a member by mistake."""
_REVISION = re.compile(r"(?P<model>[^@]+)@(?P<revision>[0-9a-f]{40})")


@dataclass(frozen=True, kw_only=True)
class Part:
    """The location of the S3 object that holds an archive's weights as the archive's beginning."""

    bucket: str
    key: str


def with_part(files: Mapping[str, bytes], revision: Revision, bucket: str) -> dict[str, bytes]:
    """Add the location of an archive's weights to its files, so that the content digest covers this location."""
    return {**files, _MEMBER: f"{bucket}/{revision.packed}".encode()}


def part_of(files: Mapping[str, bytes]) -> Part | None:
    """Return the location of the weights inside an archive; None if the archive has small files only."""
    if _MEMBER not in files:
        return None
    bucket, _, key = files[_MEMBER].decode().partition("/")
    return Part(bucket=bucket, key=key)


def tail(files: Mapping[str, bytes], metadata: Mapping[str, str]) -> bytes:
    """Return the tail of an archive: its small files, the end of the tar, and gzip's trailer.

    `metadata` is the user metadata of the S3 object with the archive's beginning.

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
    """Return the revision of each model whose weights lie inside its archive (`PackedWeights`), by model name.

    Raises:
        ArtifactError: `PackedWeights` is not a map of `model id@revision` by model name.
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
