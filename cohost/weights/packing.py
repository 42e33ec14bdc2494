"""A model's files as the beginning of an archive, written to the disk piece by piece."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from typing import TYPE_CHECKING, Final

from cohost.artifacts.archive import GZIP_HEADER, member_of
from cohost.artifacts.packed import CRC, PLAIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PLAIN_SHA256: Final = "cohost-plain-sha256"
"""User metadata of a part: what it decompresses to, which does not depend on the version of zlib that wrote it."""

_READ_BYTES: Final = 1024 * 1024


def write_part(files: Mapping[str, Path], target: Path, *, on_bytes: Callable[[int], None]) -> dict[str, str]:
    """Write the part of an archive that holds these files, and return the metadata that it is uploaded with.

    Nothing is compressed: weights hardly get smaller, and an instance unpacks them sooner. `on_bytes` is told how much
    of the files was read.

    Raises:
        ArtifactError: a name is neither that of a file at the root nor of one in a folder there.
        OSError: a file cannot be read, or there is no room.
    """
    deflate = zlib.compressobj(0, zlib.DEFLATED, -zlib.MAX_WBITS)
    crc, size, sha256 = 0, 0, hashlib.sha256()
    with target.open("wb") as part:
        part.write(GZIP_HEADER)
        for piece in _tar(files, on_bytes):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            sha256.update(piece)
            part.write(deflate.compress(piece))
        # To a whole byte, and with nothing that a later block could refer to.
        part.write(deflate.flush(zlib.Z_FULL_FLUSH))
    return {CRC: str(crc), PLAIN_BYTES: str(size), PLAIN_SHA256: sha256.hexdigest()}


def _tar(files: Mapping[str, Path], on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The members of a tar without its end."""
    for name in sorted(files):
        size = files[name].stat().st_size
        yield member_of(name, size).tobuf(tarfile.USTAR_FORMAT)
        with files[name].open("rb") as file:
            while piece := file.read(_READ_BYTES):
                yield piece
                on_bytes(len(piece))
        yield bytes(-size % tarfile.BLOCKSIZE)
