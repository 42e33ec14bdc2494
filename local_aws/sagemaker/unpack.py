"""Unpacks a model archive the way that an instance may: files and folders only, none outside the target folder."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_BYTES = 1024 * 1024


class ArchiveFault(Exception):  # noqa: N818 - a fault of the user's archive, named as one
    """An archive is no gzip-compressed tar, is cut short, or holds what must not be unpacked."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a gzip-compressed tar into a folder, which is made.

    Raises:
        ArchiveFault: the archive cannot be read to its end, or has a link, a device or a path outside the folder.
    """
    folder.mkdir(parents=True)
    try:
        with gzip.open(archive) as stream:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                for member in tar:
                    _unpack_member(tar, member, folder)
            # The tar's end comes before the stream's, and only there is the checksum of the whole compared.
            while stream.read(_CHUNK_BYTES):
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as fault:
        raise ArchiveFault(str(fault) or type(fault).__name__) from fault
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as fault:
        raise ArchiveFault(f"a file and a folder have one name: {fault.filename}") from fault


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise ArchiveFault(f"{member.name!r} lies outside the archive's folder")
    target = folder / path
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise ArchiveFault(f"{member.name!r} is a link or a special file; only plain files can be served")
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as out:
        shutil.copyfileobj(content, out)
