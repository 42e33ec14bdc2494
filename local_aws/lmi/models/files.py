"""A model's files: fetch and unpack the archive of a load request, and make the weights available to the workers.

The real server unpacks an archive of any size until the disk is full. In the emulator an archive that unpacks to more
than `cohost verify` accepts is refused, because the disk is the user's own.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.archive import server_name
from cohost.archives.inventory import (
    BoundedStream,
    HostileArchiveError,
    check_member_count,
    check_unpacked_size,
    unpacked_limit,
)
from local_aws.lmi.errors import ArchiveFailure, DownloadFailure, EngineFailure, ModelNotFound
from local_aws.lmi.models.hub import HubError
from local_aws.lmi.workers.fork_server import HUB_CACHE

if TYPE_CHECKING:
    from local_aws.lmi.models.hub import Hub
    from local_aws.lmi.settings import ModelSettings


_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_ZIP_SUFFIX = ".zip"


Download = Callable[[str, Path], Path]
"""A function that copies the files of an s3:// address into a folder and returns it, or raises EngineFailure."""


def model_folder(url: str, cache: Path, download: Download) -> Path:
    """Return the model's folder behind `url`: a path, `file:` address or s3:// prefix. Archives go below `cache`.

    Raises:
        ModelNotFound: there is neither a folder nor an archive at this address.
        ArchiveFailure: the archive is broken, would write outside its folder, or unpacks to far more than a model's
            size.
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
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, zlib.error, HostileArchiveError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArchiveFailure(_explain(path, error)) from error
    return innermost(folder)


def name_from_url(url: str) -> str:
    """Return the model's name for a load request that names none: the address's last part without its suffixes."""
    last = unquote(url).rstrip("/").rpartition("/")[2]
    for suffix in (*_TAR_SUFFIXES, _ZIP_SUFFIX):
        last = last.removesuffix(suffix)
    return server_name(last)


def _plain_path(url: str) -> str:
    if url.startswith("file://"):
        return unquote(url.removeprefix("file://"))
    return unquote(url.removeprefix("file:")) if url.startswith("file:") else url


def is_archive(path: Path) -> bool:
    """Return True if this is a file that the server would unpack."""
    return path.is_file() and _unpacker(path) is not None


def innermost(folder: Path) -> Path:
    """Descend while a folder's only entry is a folder, as the real server does; return the folder that this reaches."""
    entries = list(folder.iterdir())
    return innermost(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def _unpacker(path: Path) -> Callable[[Path, Path], None] | None:
    if path.name.endswith(_TAR_SUFFIXES):
        return _untar
    return _unzip if path.name.endswith(_ZIP_SUFFIX) else None


def _untar(path: Path, folder: Path) -> None:
    compressed, unpacked = path.stat().st_size, 0
    with path.open("rb") if path.name.endswith(".tar") else gzip.open(path) as stream:
        bounded = BoundedStream(stream, unpacked_limit(compressed))
        with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive, start=1):
                unpacked += member.size
                check_member_count(count)
                check_unpacked_size(unpacked, compressed)
                # The filter rejects members outside the folder.
                archive.extract(member, folder, filter="data")


def _unzip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        check_member_count(len(archive.infolist()))
        check_unpacked_size(sum(member.file_size for member in archive.infolist()), path.stat().st_size)
        archive.extractall(folder)  # noqa: S202 - zipfile drops what would lead out of the folder


def _explain(path: Path, error: Exception) -> str:
    if isinstance(error, tarfile.ReadError | gzip.BadGzipFile) and not path.name.endswith(".tar"):
        return "Input is not in the .gz format"
    text = error.fault.message if isinstance(error, HostileArchiveError) else error
    return f"{path.name} cannot be unpacked: {text}"


def download(url: str, into: Path) -> Path:
    """Copy every object below `url` ("s3://bucket/prefix") into the folder `into` and return that folder.

    Credentials and endpoint come from the environment, as boto3 reads them.

    Raises:
        DownloadFailure: there is no object, or S3 rejects the request.
    """
    parts = urlsplit(url)
    # The server's downloader requests "<address>/*": objects below the address, without neighbours with a longer name.
    prefix = f"{parts.path.strip('/')}/"
    try:
        client = boto3.client("s3")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=parts.netloc, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", []) if not item["Key"].endswith("/")]
        for key in keys:
            target = into / key.removeprefix(prefix)
            if not target.resolve().is_relative_to(into.resolve()):
                raise DownloadFailure(f"Failed to download {url}: the key {key} leads out of the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(parts.netloc, key, str(target))
    except (BotoCoreError, ClientError, OSError) as error:
        raise DownloadFailure(f"Failed to download {url}: {error}") from error
    if not keys:
        raise DownloadFailure(f"Failed to download {url}: no object has that prefix; check option.model_id")
    return into


_MAIN = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNKNOWN_COMMIT = "0" * 40


def with_local_weights(
    settings: ModelSettings, *, model_dir: Path, hub: Hub, cache: Path, download: Download
) -> ModelSettings:
    """Make a model's weights available to its workers, and return the settings with the weights' location.

    As on the real server, a handler's first call gets as `model_id` the folder of the weights fetched from S3, or the
    Hub id as serving.properties has it. The files of a Hub model are linked into the workers' Hub cache, as if they had
    been fetched before. A `model_id` that is an absolute path is not changed; if the path does not exist, the worker
    fails as on the real server.

    Raises:
        EngineFailure: the hub lacks the model in the configured revision, or the weights cannot be fetched from S3.
    """
    model_id = settings.properties.get("model_id")
    if not model_id or Path(model_id).is_absolute():
        return settings
    if model_id.startswith("s3://"):
        return _with_folder(settings, download(model_id, Path(tempfile.mkdtemp(dir=cache))))
    if (model_dir / model_id).is_dir():
        return _with_folder(settings, model_dir / model_id)
    revision = settings.properties.get("revision")
    try:
        folder = hub.resolve(model_id, revision)
    except HubError as error:
        raise EngineFailure(f"Failed to initialize model: {error}") from error
    _link(folder, cache / HUB_CACHE, model_id, revision or _MAIN)
    return settings


def _with_folder(settings: ModelSettings, folder: Path) -> ModelSettings:
    properties = {key: value for key, value in settings.properties.items() if key != "revision"}
    return replace(settings, properties=properties | {"model_id": str(folder)})


def _link(folder: Path, cache: Path, model_id: str, revision: str) -> None:
    """Link a hub folder into a Hub cache as a snapshot (see huggingface_hub, "Manage huggingface_hub cache-system")."""
    repository = cache / f"models--{model_id.replace('/', '--')}"
    commit = revision if _COMMIT.fullmatch(revision) else _UNKNOWN_COMMIT
    snapshot, reference = repository / "snapshots" / commit, repository / "refs" / revision
    for place in (snapshot, reference):
        place.parent.mkdir(parents=True, exist_ok=True)
    # Another model of the container may have linked the same hub model already.
    with contextlib.suppress(FileExistsError):
        snapshot.symlink_to(folder.resolve(), target_is_directory=True)
    if commit != revision:
        reference.write_text(commit, encoding="ascii")
