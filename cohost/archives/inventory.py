"""A reader that lists the contents of an untrusted tar.gz without extraction, with bounded memory and time."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Literal

from .errors import Fault

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["file", "folder", "link", "special"]

MEMBERS = 10_000
"""The limit for the number of entries in an archive; no model has more files."""
TEXT_BYTES = 4 * 1024 * 1024
"""The size in bytes up to which a text file is read whole."""
PLAIN_BYTES = 256 * 1024 * 1024
RATIO = 100
"""The limit for an archive's decompressed bytes is PLAIN_BYTES + RATIO x its file size; weights hardly compress."""

READ_AT_ONCE = 64 * 1024
"""The largest number of bytes that a reader of `BoundedStream` asks for at once."""
_HEAD_BYTES = 64
_BLOCK = 512
_GZIP = b"\x1f\x8b"
_TAR_MAGIC = (257, b"ustar")
_TEXTS = {"serving.properties", "config.json", "requirements.txt", "model.safetensors.index.json"}
_TEXTS_DEPTH = 2
_TEXTS_BYTES = 16 * TEXT_BYTES
"""The limit for the bytes kept of all text files together; those of 1000 models have a few 100 kB."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One entry of an archive.

    `name` is the name in the tar without a leading "./", `size` is in bytes, `head` holds a file's first bytes, and
    `text` the whole content of a known text file such as config.json (else None).
    """

    name: str
    kind: Kind
    size: int
    head: bytes = b""
    text: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The entries of an archive, and the fault that ended the reading early; `fault` is None if all was read."""

    members: tuple[Member, ...]
    fault: Fault | None


class HostileArchiveError(Exception):
    """An archive exceeds a limit of this module, or contains a contradictory header; `fault` says which."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.message)


_DAMAGED = Fault("damaged", "the archive is damaged: a header or a checksum is wrong", "copy or pack it again")
_TRUNCATED = Fault("truncated", "the archive ends before its last file does", "copy it again; check the disk's room")
_TOO_BIG = Fault(
    "size-bomb", "the archive unpacks to far more than a model's size", "pack the model's own files, without padding"
)
_TOO_MANY = Fault("too-many-members", f"the archive holds over {MEMBERS} entries", "pack the model's own files only")


def take_inventory(path: Path) -> Inventory:
    """Read an archive once and return its entries; an unreadable archive becomes a fault, not an exception."""
    members: list[Member] = []
    fault: Fault | None = None
    try:
        with path.open("rb") as raw:
            _check_start(raw.read(_BLOCK))
            raw.seek(0)
            _walk(raw, path.stat().st_size, members)
    except HostileArchiveError as error:
        fault = error.fault
    except EOFError:
        fault = _TRUNCATED
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError):
        fault = _DAMAGED if members else Fault("not-tar", "the gzip file holds no tar", "pack it with `tar -czf`")
    except OSError as error:
        fault = Fault("unreadable", f"the file cannot be read ({error.strerror or error})", "name a readable .tar.gz")
    return Inventory(members=tuple(members), fault=fault)


def _check_start(start: bytes) -> None:
    if not start:
        raise HostileArchiveError(Fault("empty", "the file is empty", "pack it again, or copy it again"))
    if start.startswith(_GZIP):
        return
    position, magic = _TAR_MAGIC
    if start[position : position + len(magic)] == magic:
        what = "is a tar without compression"
    elif start.startswith(b"PK"):
        what = "is a zip"
    else:
        what = "is not a gzip file"
    raise HostileArchiveError(
        Fault("not-gzip", f"the file {what}; SageMaker extracts tar.gz only", "pack it with `tar -czf`")
    )


def _walk(raw: IO[bytes], compressed: int, members: list[Member]) -> None:
    with gzip.GzipFile(fileobj=raw) as stream:
        guard = BoundedStream(stream, unpacked_limit(compressed))
        kept = 0
        with tarfile.open(fileobj=guard, mode="r:") as tar:  # type: ignore[call-overload]
            while (member := tar.next()) is not None:
                check_member_count(len(members) + 1)
                members.append(_member(tar, member, keep_text=kept < _TEXTS_BYTES))
                kept += len(members[-1].text or b"")
                # Without this call tarfile would keep every member in memory, with all its headers.
                tar.members.clear()
        guard.finish()


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo, *, keep_text: bool) -> Member:
    name = info.name if info.name.startswith("/") else str(PurePosixPath(info.name))
    kind = _kind(info)
    file = tar.extractfile(info) if kind == "file" else None
    if file is None:
        return Member(name=name, kind=kind, size=info.size)
    if not (keep_text and _is_text(name)) or info.size > TEXT_BYTES:
        return Member(name=name, kind=kind, size=info.size, head=file.read(_HEAD_BYTES))
    text = b"".join(iter(lambda: file.read(_BLOCK * 16), b""))
    return Member(name=name, kind=kind, size=info.size, head=text[:_HEAD_BYTES], text=text)


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    return path.name in _TEXTS and len(path.parts) <= _TEXTS_DEPTH


def _kind(info: tarfile.TarInfo) -> Kind:
    if info.issym() or info.islnk():
        return "link"
    if info.isdir():
        return "folder"
    return "file" if info.isreg() and not info.issparse() else "special"


def unpacked_limit(compressed: int) -> int:
    """Return the most bytes that an archive of `compressed` bytes may unpack to."""
    return PLAIN_BYTES + RATIO * compressed


def check_member_count(count: int) -> None:
    """Raise HostileArchiveError if an archive has more than `MEMBERS` entries."""
    if count > MEMBERS:
        raise HostileArchiveError(_TOO_MANY)


def check_unpacked_size(size: int, compressed: int) -> None:
    """Raise HostileArchiveError if an archive of `compressed` bytes unpacks to more than `unpacked_limit` allows."""
    if size > unpacked_limit(compressed):
        raise HostileArchiveError(_TOO_BIG)


class BoundedStream:
    """The decompressed stream that tarfile reads; allows only forward reads of small pieces, up to a limit in bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._last = b""

    def tell(self) -> int:
        """Return the position in the decompressed bytes."""
        return self._stream.tell()

    def seek(self, position: int) -> int:
        """Move forward to a position within the limit."""
        # A negative size in a header would make tarfile loop forever.
        if position < self._stream.tell():
            raise HostileArchiveError(_DAMAGED)
        self._check(position)
        return self._stream.seek(position)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most READ_AT_ONCE of them."""
        # tarfile reads a larger piece at once only if a header states a huge size.
        if not 0 <= size <= READ_AT_ONCE:
            raise HostileArchiveError(_DAMAGED)
        self._check(self._stream.tell() + size)
        self._last = self._stream.read(size)
        return self._last

    def finish(self) -> None:
        """Check that tarfile stopped at a block of zeros, then read the rest, so that gzip verifies its checksum."""
        # tarfile treats every bad header but the first as the end of the archive.
        if self._last.strip(b"\0"):
            raise HostileArchiveError(_DAMAGED if len(self._last) == _BLOCK else _TRUNCATED)
        while self.read(READ_AT_ONCE):
            pass

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise HostileArchiveError(_TOO_BIG)
