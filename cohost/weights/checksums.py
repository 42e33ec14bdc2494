"""Checksums of a file, as S3 keeps them: of the whole, and of the parts that it is uploaded in."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PART_BYTES: Final = 16 * 1024 * 1024
MOST_PARTS: Final = 10_000
"""S3's limit of parts in one upload (User guide: multipart upload limits)."""

_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Checksums:
    """What identifies a file's content. `parts` are SHA-256 digests of its parts, in order; `sha256` is hexadecimal."""

    size: int
    sha256: str
    part_bytes: int
    parts: tuple[bytes, ...]

    @property
    def in_parts(self) -> bool:
        """Whether the file is uploaded in parts; smaller ones go up in one request."""
        return len(self.parts) > 1

    @property
    def s3(self) -> str:
        """The x-amz-checksum-sha256 of the object: of its bytes, or of its parts' digests (S3: composite checksums)."""
        return encoded(hashlib.sha256(b"".join(self.parts)).digest() if self.in_parts else self.parts[0])


def checksums_of(path: Path, *, part_bytes: int = PART_BYTES, on_bytes: Callable[[int], None]) -> Checksums:
    """Read a file once; `on_bytes` is told how much was read each time."""
    size = path.stat().st_size
    part_bytes = max(part_bytes, -(-size // MOST_PARTS))
    whole = hashlib.sha256()
    parts: list[bytes] = []
    with path.open("rb") as file:
        while True:
            part, left = hashlib.sha256(), part_bytes
            while left and (piece := file.read(min(left, _READ_BYTES))):
                whole.update(piece)
                part.update(piece)
                left -= len(piece)
                on_bytes(len(piece))
            if left == part_bytes and parts:
                break
            parts.append(part.digest())
            if left:
                break
    return Checksums(size=size, sha256=whole.hexdigest(), part_bytes=part_bytes, parts=tuple(parts))


def encoded(digest: bytes) -> str:
    """A digest as S3 writes it."""
    return base64.b64encode(digest).decode("ascii")
