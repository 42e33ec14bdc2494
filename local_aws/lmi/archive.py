"""From the address in a load request to a folder of model files."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from cohost.artifacts.archive import server_name
from local_aws.lmi.faults import ArchiveFailure, ModelNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_ZIP_SUFFIX = ".zip"


class Download(Protocol):
    """Fetches an s3:// prefix or object into a folder and returns the folder."""

    def __call__(self, url: str, into: Path) -> Path:
        """Raises `EngineFailure` when it cannot."""


def model_folder(url: str, cache: Path, download: Download) -> Path:
    """The folder behind `url`: a path, a `file:` address or an s3:// prefix; archives are unpacked below `cache`.

    Raises:
        ModelNotFound: nothing is there.
        ArchiveFailure: an archive is broken, or would write outside its folder.
    """
    if url.startswith("s3://"):
        return innermost(download(url, Path(tempfile.mkdtemp(dir=cache))))
    path = Path(_plain_path(url))
    if path.is_dir():
        return innermost(path)
    unpack = _unpacker(path)
    if not path.is_file() or unpack is None:
        raise ModelNotFound(f"Invalid model url: {url}")
    folder = Path(tempfile.mkdtemp(dir=cache))
    try:
        unpack(path, folder)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArchiveFailure(_explain(path, error)) from error
    return innermost(folder)


def name_from_url(url: str) -> str:
    """The model's name where a load request gives none: the last part of the address without its suffixes."""
    last = unquote(url).rstrip("/").rpartition("/")[2]
    for suffix in (*_TAR_SUFFIXES, _ZIP_SUFFIX):
        last = last.removesuffix(suffix)
    return server_name(last)


def _plain_path(url: str) -> str:
    if url.startswith("file://"):
        return unquote(url.removeprefix("file://"))
    return unquote(url.removeprefix("file:")) if url.startswith("file:") else url


def is_archive(path: Path) -> bool:
    """Whether the server would unpack the file."""
    return path.is_file() and _unpacker(path) is not None


def innermost(folder: Path) -> Path:
    """An archive packed with its folder around it is read from that folder, as the real server does."""
    entries = list(folder.iterdir())
    return innermost(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def _unpacker(path: Path) -> Callable[[Path, Path], None] | None:
    if path.name.endswith(_TAR_SUFFIXES):
        return _untar
    return _unzip if path.name.endswith(_ZIP_SUFFIX) else None


def _untar(path: Path, folder: Path) -> None:
    with tarfile.open(path) if path.name.endswith(".tar") else tarfile.open(path, "r:gz") as archive:
        # The filter refuses members that would land outside the folder.
        archive.extractall(folder, filter="data")


def _unzip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)  # noqa: S202 - zipfile drops what would lead out of the folder


def _explain(path: Path, error: Exception) -> str:
    if isinstance(error, tarfile.ReadError | gzip.BadGzipFile) and not path.name.endswith(".tar"):
        return "Input is not in the .gz format"
    return f"{path.name} cannot be unpacked: {error}"
