"""Model archives: tar.gz files whose bytes depend on nothing but their members' names and contents.

The module `archive` writes all archives of the project, from small files in memory and from weights on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import secrets
import struct
import tarfile
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from .errors import ArtifactError
from .properties import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

BUNDLE_DIGEST = "bundle-"
"""The beginning of a bundle's content digest, so that it differs from the digest of any single model's archive."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MEMBER_PARTS = 2
_NO_WORD_CHARACTER = re.compile(r"\W", re.ASCII)
_READ_BYTES = 1024 * 1024
BEST = 9
"""The zlib compression level (0 to 9) of archives that hold small files only."""
# Magic number, deflate, no flags, no time, no level, unknown system (RFC 1952). gzip.compress writes other values in
# other versions of Python.
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

_FILE_ORDER = (
    "engine",
    "option.model_id",
    "option.task",
    "option.rolling_batch",
    "gpu.minWorkers",
    "gpu.maxWorkers",
    "required_memory_mb",
    "option.revision",
    "option.tensor_parallel_degree",
)


def in_file_order(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties in the order of serving.properties: those that identify the model, then the rest by name.

    The order is fixed because CloudFormation does not keep the order of a map's keys, and another order of the lines
    would change the archive's content.
    """
    first = {key: properties[key] for key in _FILE_ORDER if key in properties}
    return first | {key: properties[key] for key in sorted(properties) if key not in first}


def model_files(
    properties: Mapping[str, str], requirements: Sequence[str] = (), code: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, bytes]:
    """Return the members of a model's archive: serving.properties, the handler's code, and any requirements.txt.

    Raises:
        ArtifactError: the properties cannot be written as Java properties.
    """
    files = {**code, "serving.properties": dumps(in_file_order(properties)).encode("ascii")}
    if requirements:
        files["requirements.txt"] = "".join(f"{line}\n" for line in requirements).encode()
    return files


def server_name(folder: str) -> str:
    """Return the name under which DJL Serving serves a folder of its model store: `xlmr_large` for `xlmr-large`.

    Each character other than an ASCII letter, a digit or `_` becomes `_`; letter case does not change. A model that is
    loaded by `POST /models?model_name=` is served under the name in that request (DJL Serving 0.36.0:
    ModelInfo.inferModelNameFromUrl, recording 29).
    """
    return _NO_WORD_CHARACTER.sub("_", folder)


def bundle_files(models: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the members of one archive for all models, by their names `<folder>/<file>`.

    The server loads each folder of its model store as a model if the store holds only folders (DJL Serving 0.36.0,
    recordings 12 and 17). A folder has the name that the server gives the model (`server_name`), not the catalog's
    name, so that the archive, the server's log and its list of models use the same name.

    Raises:
        ArtifactError: two models would have the same name, and the server would not start (recording 29).
    """
    folders: dict[str, str] = {}
    for model in models:
        if (other := folders.setdefault(server_name(model), model)) != model:
            raise ArtifactError(
                "model-name-collides",
                f"models.{model}",
                f"the server serves it as {server_name(model)!r}, as it does {other!r}",
                allowed="names that differ in letters or digits",
                fix="rename one",
            )
    return {f"{server_name(model)}/{name}": data for model, files in models.items() for name, data in files.items()}


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a tar.gz with these files; equal files give equal bytes on any machine, at any time, in any order.

    Each key of `files` is a file's name in the archive: `file` or `folder/file`. The compressed bytes may differ
    between zlib versions; the result of `content_digest` does not.

    Raises:
        ArtifactError: a file's name has another form.
    """
    return b"".join(archive_pieces(files, BEST))


def archive_pieces(files: Mapping[str, bytes | Path], level: int) -> Iterator[bytes]:
    """Yield a tar.gz with these members piece by piece, so that a file of any size never has to fit into memory.

    Args:
        files: each member's content, or the path of the file with that content, by member name.
        level: the zlib compression level, from 0 (none) to 9 (smallest).

    Raises:
        ArtifactError: a member's name is neither `file` nor `folder/file`.
        OSError: a file cannot be read, or has become shorter while it was read.
    """
    gzip = Gzip(level)
    yield GZIP_HEADER
    yield from map(gzip.compress, tar_members(files))
    yield gzip.compress(_tar_end(gzip.size)) + gzip.finish()


class Gzip:
    """A writer of a gzip stream after the stream's header; keeps the checksum and size of the uncompressed bytes.

    Args:
        level: the zlib compression level, from 0 (none) to 9 (smallest).
        checksum: the CRC-32 of the uncompressed bytes that precede in the same stream.
        size: the number of the uncompressed bytes that precede.
    """

    def __init__(self, level: int, *, checksum: int = 0, size: int = 0) -> None:
        self.checksum = checksum
        self.size = size
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)

    def compress(self, plain: bytes) -> bytes:
        """Add uncompressed bytes, and return those compressed bytes that are complete so far."""
        self.checksum = zlib.crc32(plain, self.checksum)
        self.size += len(plain)
        return self._deflate.compress(plain)

    def pause(self) -> bytes:
        """Return the pending compressed bytes, padded to a byte boundary, so that other compressed data can follow.

        Later compressed data never refers back to the returned bytes or to bytes before them (deflate's full flush).
        """
        return self._deflate.flush(zlib.Z_FULL_FLUSH)

    def finish(self) -> bytes:
        """Return the pending compressed bytes and gzip's trailer: the CRC-32 and the size."""
        return self._deflate.flush() + struct.pack("<LL", self.checksum, self.size & 0xFFFFFFFF)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """Return an uncompressed tar of these files.

    Raises:
        ArtifactError: a member's name is neither `file` nor `folder/file`.
    """
    members = b"".join(tar_members(files))
    return members + _tar_end(len(members))


def tar_members(
    files: Mapping[str, bytes | Path], on_bytes: Callable[[int], None] = lambda _count: None
) -> Iterator[bytes]:
    """Yield the members of a tar in pieces, without the empty blocks that end the tar.

    After the caller has used a piece of a member's content, `on_bytes` is called with the piece's number of bytes.

    Raises:
        ArtifactError: a member's name is neither `file` nor `folder/file`.
        OSError: a file cannot be read, or has become shorter while it was read.
    """
    for name in sorted(files):
        content = files[name]
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        yield _header(name, size)
        for piece in (content,) if isinstance(content, bytes) else _read(content, size):
            yield piece
            on_bytes(len(piece))
        yield bytes(-size % tarfile.BLOCKSIZE)


def digest(data: bytes) -> str:
    """Return the content digest of an archive that `pack` wrote: SHA-256 of member names and contents, in hex.

    Raises:
        ArtifactError: the bytes are not a tar.gz of regular files.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            files = {member.name: tar.extractfile(member) for member in tar}
            return content_digest({name: file.read() for name, file in files.items() if file is not None})
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ArtifactError(
            "archive-unreadable", "archive", f"cannot be read ({error})", fix="write it with `cohost bundle`"
        ) from error


def content_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 (64 hex digits) over the names and contents of files, each preceded by its length.

    Without the lengths, two sets of files could have the same digest if their concatenated bytes are equal. The digest
    of a bundle (one archive of all models, with a folder per model) starts with `bundle-`.
    """
    state = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            state.update(struct.pack(">Q", len(part)))
            state.update(part)
    # A name that starts with / is not a file but the location of weights that S3 copies into the archive.
    mark = BUNDLE_DIGEST if any("/" in name[1:] for name in files) else ""
    return mark + state.hexdigest()


def write_archive(path: Path, data: bytes) -> None:
    """Write an archive to the disk; after an error an existing file is unchanged.

    Raises:
        ArtifactError: the file cannot be written, for example because the disk is full.
    """
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise ArtifactError(
            "file-unwritable",
            str(path),
            f"cannot be written ({error.strerror or error})",
            allowed=f"{len(data)} bytes of free, writable space",
            fix="make room or choose another folder",
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces the file at `path` once the new file is completely on the disk.

    After an error an existing file is unchanged, and no incomplete file remains. Missing parent folders are created.

    Raises:
        OSError: the file cannot be written.
    """
    # The temporary file lies in the same folder, because a replacement is only atomic within one file system.
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        # This runs after Ctrl-C too. The file is missing after success, or if the folder could not be created.
        with contextlib.suppress(OSError):
            part.unlink()


def _header(name: str, size: int) -> bytes:
    """Return a tar member's header; the header does not depend on machine, time or owner.

    Raises:
        ArtifactError: the name is neither `file` nor `folder/file`.
    """
    parts = name.split("/")
    if len(parts) > _MEMBER_PARTS or not all(map(_is_plain, parts)):
        raise ArtifactError(
            "member-name",
            f"archive member {name!a}",
            "is not a plain file name",
            allowed="1-100 of A-Z a-z 0-9 . _ - and before it one such folder, because the server looks no deeper",
            fix="rename it",
        )
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member.tobuf(tarfile.USTAR_FORMAT)


def _is_plain(part: str) -> bool:
    return bool(_PLAIN.fullmatch(part)) and part not in {".", ".."}


def _read(path: Path, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file in pieces."""
    with path.open("rb") as file:
        while size:
            piece = file.read(min(size, _READ_BYTES))
            if not piece:
                raise OSError(f"{path}: has become shorter while it was read")
            size -= len(piece)
            yield piece


def _tar_end(size: int) -> bytes:
    """Return the end of a tar with `size` bytes of members: two blocks of zeros, padded to a whole tar record."""
    end = 2 * tarfile.BLOCKSIZE
    return bytes(end + -(size + end) % tarfile.RECORDSIZE)
