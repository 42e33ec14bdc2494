"""Archives with weights: tar.gz files whose bytes depend on their members alone, written without holding them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import struct
import tarfile
import zlib
from typing import TYPE_CHECKING, BinaryIO, Final

from cohost.onnx.errors import OnnxError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Weights hardly shrink, so the fastest level: a tenth of the time of the best for a few percent more.
_LEVEL: Final = 1
# Magic number, deflate, no flags, no time, no level, unknown system (RFC 1952): the same from every Python version.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_CHUNK: Final = 1 << 20


class _Gzip:
    """A file to write to, compressed into `target`, with its SHA-256."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._checksum = 0
        self._length = 0
        self._digest = hashlib.sha256()
        self._put(_HEADER)

    def write(self, data: bytes) -> int:
        self._checksum = zlib.crc32(data, self._checksum)
        self._length += len(data)
        self._put(self._deflate.compress(data))
        return len(data)

    def finish(self) -> str:
        """Write the end; the SHA-256 of the whole as 64 hex digits."""
        self._put(self._deflate.flush())
        self._put(struct.pack("<LL", self._checksum, self._length & 0xFFFFFFFF))
        return self._digest.hexdigest()

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._target.write(data)


def pack_files(files: Mapping[str, bytes | Path], target: Path) -> str:
    """Write an archive with these members at its root, whole or not at all, and return its SHA-256 (64 hex digits).

    Args:
        files: contents, or the files that hold them, by member name.
        target: the archive; its folder is made.

    Raises:
        OnnxError: the archive cannot be written, for example because the disk is full; nothing half-written stays.
    """
    # The same folder, since a replacement is only atomic within one file system.
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as out:
            digest = _write(files, out)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    except OSError as error:
        raise OnnxError(
            f"{target}: cannot be written ({error.strerror or error}); fix: make room or choose another folder"
        ) from error
    finally:
        # Also after Ctrl-C. Gone already after success, and never there if the folder could not be made.
        with contextlib.suppress(OSError):
            part.unlink()
    return digest


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file as 64 hex digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write(files: Mapping[str, bytes | Path], out: BinaryIO) -> str:
    stream = _Gzip(out)
    # "w|" never seeks, so the archive can be of any size; the blocks are those of a plain tar.
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT, bufsize=_CHUNK) as tar:  # type: ignore[call-overload]
        for name in sorted(files):
            _add(tar, name, files[name])
    return stream.finish()


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    if isinstance(content, bytes):
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        return
    member.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(member, file)
