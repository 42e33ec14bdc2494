"""The storage volume of an instance: each archive is fetched from S3 and unpacked once.

An unpacked archive stays until the instance ends or the load of its model fails, so overwriting or deleting the object
in S3 has no effect on instances that have fetched it (AWS: "Add or Remove Models", "Set … model caching behavior").
Only plain files and folders are unpacked, and only inside the target folder. An archive that unpacks to more than
`cohost verify` accepts for its size is refused, because an instance's disk is limited and the emulator's disk is
shared.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import tarfile
import threading
import uuid
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError, ParamValidationError

from cohost.archives.inventory import (
    READ_AT_ONCE,
    BoundedStream,
    HostileArchiveError,
    check_member_count,
    check_unpacked_size,
    unpacked_limit,
)
from local_aws.kit.errors import ValidationException
from local_aws.sagemaker.errors import model_data_unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.kit.clients import ServiceClients


S3_URI = re.compile(r"s3://(?P<bucket>[^/]+)/?(?P<key>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class S3Location:
    """The location of an object in S3, or of all objects under a prefix: the bucket, and the key or the prefix."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> S3Location:
        """Parse the URL `s3://bucket/key` of an object or a prefix.

        Raises:
            ValidationException: the URL has another scheme.
        """
        if (match := S3_URI.fullmatch(url)) is None:
            raise ValidationException(f"ModelDataUrl {url} must be an Amazon S3 URI, s3://bucket/key")
        return cls(bucket=match["bucket"], key=match["key"])


class ArchiveError(Exception):
    """An archive is not a gzip-compressed tar, is truncated, or has a member or a size that must not be unpacked."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a gzip-compressed tar into a new folder.

    Raises:
        ArchiveError: the archive cannot be read to its end, unpacks to far more than a model's size, or has a link, a
            device or a path outside the folder.
    """
    folder.mkdir(parents=True)
    compressed, unpacked = archive.stat().st_size, 0
    try:
        with gzip.open(archive) as stream:
            bounded = BoundedStream(stream, unpacked_limit(compressed))
            with tarfile.open(fileobj=bounded, mode="r:") as tar:  # type: ignore[call-overload]
                for count, member in enumerate(iter(tar.next, None), start=1):
                    unpacked += member.size
                    check_member_count(count)
                    check_unpacked_size(unpacked, compressed)
                    _unpack_member(tar, member, folder)
            # The tar ends before the gzip stream, and gzip compares the checksum only at the end of the stream.
            while bounded.read(READ_AT_ONCE):
                pass
    except HostileArchiveError as fault:
        raise ArchiveError(fault.fault.message) from fault
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as fault:
        raise ArchiveError(str(fault) or type(fault).__name__) from fault
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as fault:
        raise ArchiveError(f"a file and a folder have one name: {fault.filename}") from fault


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise ArchiveError(f"{member.name!r} lies outside the archive's folder")
    target = folder / path
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise ArchiveError(f"{member.name!r} is a link or a special file; only plain files can be served")
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as out:
        shutil.copyfileobj(content, out, READ_AT_ONCE)


class ModelDisk:
    """Fetch archives into `folder`, the disk of one instance, with the rights of the execution role `role`."""

    def __init__(self, clients: ServiceClients, folder: Path, role: str | None) -> None:
        self._clients = clients
        self._role = role
        self._folder = folder

    def holds(self, name: str) -> bool:
        """Return True if an archive is unpacked under `name` already."""
        return (self._folder / name).is_dir()

    async def fetch(self, source: S3Location, name: str) -> Path:
        """Return the folder of an unpacked archive; fetch and unpack the archive if the folder does not exist.

        Raises:
            ValidationError: the object cannot be read, or is not an archive that can be unpacked.
        """
        folder = self._folder / name
        if not self.holds(name):
            fetch = _Fetch()
            try:
                await self._clients.run(self._fetch, source, folder, fetch)
            except asyncio.CancelledError:
                fetch.give_up()
                raise
        return folder

    async def discard(self, name: str) -> None:
        """Delete the folder of an unpacked archive, so that the next `fetch` reads S3 again."""
        await self._clients.run(shutil.rmtree, self._folder / name, ignore_errors=True)

    def _fetch(self, source: S3Location, folder: Path, fetch: _Fetch) -> None:
        # Unpack into a scratch folder first: a fetch that fails, or is cancelled, leaves no partial model.
        scratch = self._folder / f".{folder.name}-{uuid.uuid4().hex}"
        scratch.mkdir(parents=True)
        try:
            self._download(source, scratch / "archive")
            unpack(scratch / "archive", scratch / "model")
            fetch.move(scratch / "model", folder)
        except ArchiveError as fault:
            raise model_data_unavailable(
                "extract", source.bucket, source.key, f"the object is a gzip-compressed tar of plain files ({fault})"
            ) from fault
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _download(self, source: S3Location, path: Path) -> None:
        try:
            body = self._clients.s3(self._role).get_object(Bucket=source.bucket, Key=source.key)["Body"]
        except (ClientError, ParamValidationError) as fault:
            raise model_data_unavailable(
                "download",
                source.bucket,
                source.key,
                "there is an object located at the URL and that the role passed to CreateModel has permissions to "
                "download the model",
            ) from fault
        with body, path.open("wb") as out:
            shutil.copyfileobj(body, out)


class _Fetch:
    """A fetch of an archive in a thread; after `give_up` the thread continues, but its result is thrown away."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._wanted = True

    def give_up(self) -> None:
        """Make `move` do nothing from now on."""
        with self._deciding:
            self._wanted = False

    def move(self, source: Path, target: Path) -> None:
        """Move the unpacked archive from `source` to `target`, unless the fetch was given up."""
        with self._deciding:
            if self._wanted:
                source.replace(target)
