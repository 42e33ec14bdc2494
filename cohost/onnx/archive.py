"""Archives with weights: tar.gz files whose bytes depend on their members alone, written without holding them.

An exported model's archive and the note beside it that says what it is: read at synth, checked before an upload.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import struct
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeGuard

from cohost.artifacts.properties import dumps
from cohost.errors import OnnxError
from cohost.onnx.recipe import HANDLER, REQUIREMENTS, handler_files
from cohost.routing import ARCHIVE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.catalog.sections.designs import Serving
    from cohost.onnx.recipe import Recipe


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


NOTE_SUFFIX: Final = ".json"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One exported model on this machine; `sha256` is that of the archive's bytes."""

    name: str
    file: Path
    sha256: str
    serving: Serving
    precision: str
    size: int


def archive_file(folder: Path, name: str) -> Path:
    """Where a model's archive lies in the folder of exports."""
    return folder / f"{name}{ARCHIVE_SUFFIX}"


def note_file(folder: Path, name: str) -> Path:
    """Where the note about a model's archive lies."""
    return folder / f"{name}{NOTE_SUFFIX}"


def members(model: Mapping[str, Path], properties: Mapping[str, str], serving: Serving) -> dict[str, bytes | Path]:
    """The members of an archive: the model's files, its properties, and for the handler its code and requirements."""
    files: dict[str, bytes | Path] = {**model, "serving.properties": dumps(properties).encode("ascii")}
    if serving == HANDLER:
        files |= handler_files()
        files["requirements.txt"] = "".join(f"{line}\n" for line in REQUIREMENTS).encode()
    return files


def find_archive(folder: Path, recipe: Recipe) -> Archive:
    """The archive of a model as the catalog is now.

    Raises:
        OnnxError: it is not there, was made from other settings, or is not the file that its note tells of.
    """
    note = _read_note(folder, recipe.name)
    fix = f"fix: cohost export-onnx {recipe.name} --out {folder}"
    file = archive_file(folder, recipe.name)
    wanted, found = recipe.as_data(note["serving"]), note["recipe"]
    if wanted != found:
        both = wanted.keys() & found.keys()
        key = next(key for key in wanted | found if key not in both or wanted[key] != found[key])
        raise OnnxError(
            f"{file}: was exported with another {key} ({found.get(key)!r}, now {wanted.get(key)!r}); allowed: an "
            f"export of the catalog as it is; {fix}"
        )
    if not file.is_file() or sha256_of(file) != note["sha256"]:
        raise OnnxError(f"{file}: is not the archive that {note_file(folder, recipe.name).name} tells of; {fix}")
    return Archive(
        name=recipe.name,
        file=file,
        sha256=note["sha256"],
        serving=note["serving"],
        precision=recipe.precision,
        size=file.stat().st_size,
    )


def _read_note(folder: Path, name: str) -> Mapping[str, Any]:
    file = note_file(folder, name)
    fix = f"fix: cohost export-onnx {name} --out {folder}"
    try:
        note: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise OnnxError(f"{file}: cannot be read ({error.strerror}), so {name} is not exported yet; {fix}") from error
    except ValueError as error:
        raise OnnxError(f"{file}: is no JSON ({error}); {fix}") from error
    if not _is_note(note):
        raise OnnxError(f"{file}: tells neither recipe nor checksum; allowed: what export-onnx writes; {fix}")
    return note


def _is_note(data: object) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(data, dict) or not {"recipe", "serving", "sha256"} <= data.keys():
        return False
    return isinstance(data["recipe"], dict)
