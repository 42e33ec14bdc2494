"""Model archives: tar.gz files whose bytes depend on nothing but their members' names and contents."""

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
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BUNDLE_DIGEST = "bundle-"
"""What the digest of a bundle starts with, so that nothing takes it for the digest of one model's archive."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MEMBER_PARTS = 2
_NO_WORD_CHARACTER = re.compile(r"\W", re.ASCII)
# Magic number, deflate, no flags, no time, no level, unknown system (RFC 1952). gzip.compress writes what its Python
# version likes there.
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
    """Properties in the order in which they are written: what makes a model first, the rest by name.

    The order is fixed here because the properties arrive through CloudFormation, which promises none for a map, and
    another order would be another content.
    """
    first = {key: properties[key] for key in _FILE_ORDER if key in properties}
    return first | {key: properties[key] for key in sorted(properties) if key not in first}


def model_files(
    properties: Mapping[str, str], requirements: Sequence[str] = (), code: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, bytes]:
    """The members of a model's archive: serving.properties, requirements.txt where there are any, and handler code.

    Raises:
        ArtifactError: the properties cannot be written as Java properties.
    """
    files = {**code, "serving.properties": dumps(in_file_order(properties)).encode("ascii")}
    if requirements:
        files["requirements.txt"] = "".join(f"{line}\n" for line in requirements).encode()
    return files


def model_archive(properties: Mapping[str, str], requirements: Sequence[str] = ()) -> bytes:
    """The archive of a model, as `pack` writes it.

    Raises:
        ArtifactError: the properties cannot be written as Java properties.
    """
    return pack(model_files(properties, requirements))


def server_name(folder: str) -> str:
    """The name under which the server serves a folder of its model store: `xlmr-large` becomes `xlmr_large`.

    Each character but an ASCII letter, digit or `_` becomes `_`; letter case stays. A model that is loaded by
    `POST /models?model_name=` keeps whatever name it is given (DJL Serving 0.36.0: ModelInfo.inferModelNameFromUrl,
    recording 29).
    """
    return _NO_WORD_CHARACTER.sub("_", folder)


def bundle_files(models: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """The members of one archive for all models, by `<folder>/<file>`.

    The server takes each folder of its model store for a model, if nothing but folders lies there (DJL Serving 0.36.0,
    recordings 12 and 17). A folder has the name that the server gives the model, not the catalog's: so archive, log and
    list of models name it alike.

    Raises:
        ArtifactError: two models would have one name, with which the server does not start (recording 29).
    """
    folders: dict[str, str] = {}
    for model in models:
        if (other := folders.setdefault(server_name(model), model)) != model:
            raise ArtifactError(
                f"models.{model}: the server serves it as {server_name(model)!r}, as it does {other!r}; allowed are "
                "names that differ in letters or digits; rename one"
            )
    return {f"{server_name(model)}/{name}": data for model, files in models.items() for name, data in files.items()}


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz with these files; equal files give equal bytes, whatever the machine, time or order.

    A name is that of a file at the root, or of one in a folder at the root.

    The compressed bytes may differ between zlib versions; `content_digest` does not.

    Raises:
        ArtifactError: a name is neither.
    """
    return _gzip(tar_of(files))


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """The tar of an archive, before it is compressed.

    Raises:
        ArtifactError: as `pack`.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            tar.addfile(member_of(name, len(files[name])), io.BytesIO(files[name]))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    """The content digest (SHA-256, 64 hex digits) of an archive that `pack` wrote: over members, not over compression.

    Raises:
        ArtifactError: the bytes are no tar.gz of regular files.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            files = {member.name: tar.extractfile(member) for member in tar}
            return content_digest({name: file.read() for name, file in files.items() if file is not None})
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ArtifactError(f"archive: cannot be read ({error}); write it with `cohost bundle`") from error


def content_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 (64 hex digits) over the names and contents of files, with their lengths, so that nothing can shift.

    That of a bundle, whose files lie in folders, starts with `bundle-`.
    """
    state = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            state.update(struct.pack(">Q", len(part)))
            state.update(part)
    # A name that starts with / is no file's; it stands for weights that are copied into the archive.
    mark = BUNDLE_DIGEST if any("/" in name[1:] for name in files) else ""
    return mark + state.hexdigest()


def write_archive(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: the old file, if any, stays until the new one is complete on the disk.

    Missing parent folders are made.

    Raises:
        ArtifactError: the file cannot be written, for example because the disk is full; nothing half-written stays.
    """
    # The same folder, since os.replace is only atomic within one file system.
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror or error}); {len(data)} bytes of free, writable space "
            "are needed; make room or choose another folder"
        ) from error
    finally:
        # Also after Ctrl-C. Gone already after success, and never there if the folder could not be made.
        with contextlib.suppress(OSError):
            part.unlink()


def member_of(name: str, size: int) -> tarfile.TarInfo:
    """The header of a member: nothing in it depends on machine, time or owner.

    Raises:
        ArtifactError: the name is neither that of a file at the root nor of one in a folder there.
    """
    parts = name.split("/")
    if len(parts) > _MEMBER_PARTS or not all(map(_is_plain, parts)):
        raise ArtifactError(
            f"archive member {name!a}: is not a plain file name; allowed are 1-100 of A-Z a-z 0-9 . _ - and before it "
            "one such folder, because the server looks no deeper; rename it"
        )
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _is_plain(part: str) -> bool:
    return bool(_PLAIN.fullmatch(part)) and part not in {".", ".."}


def _gzip(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return GZIP_HEADER + deflate.compress(data) + deflate.flush() + trailer
