"""The code of Lambda functions: it is fetched when a function is created or changed, and unpacked into a folder."""

from __future__ import annotations

import base64
import hashlib
import shutil
import stat
import tempfile
import threading
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from local_aws.kit.errors import not_emulated
from local_aws.lambda_functions.errors import CodeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedRandom
    from pathlib import Path

    from local_aws.kit.clients import Clients


# Lambda's own limit for an unpacked package (Lambda quotas).
UNPACKED_LIMIT_BYTES: Final = 250 * 1024 * 1024
# Lambda has no limit of its own for the number of files; the disk is the user's, though.
MEMBERS: Final = 50_000
SYMLINK: Final = stat.S_IFLNK


class CodeStore:
    """Keeps the unpacked code of all functions.

    Args:
        folder: the folder for unpacked code, with one sub-folder for each content.
        clients: boto3 clients that call the emulator, for code in S3.
    """

    def __init__(self, folder: Path, clients: Clients) -> None:
        self._folder = folder
        self._clients = clients
        self._by_function: dict[tuple[str, str], Path] = {}
        # Stacks that are deployed at the same time may create functions of the same content at the same time.
        self._unpacking = threading.Lock()

    def unpack(self, region: str, code: Mapping[str, Any]) -> Path:
        """Fetch and unpack code, and return its folder; call `bind` after moto has accepted the function.

        Args:
            region: the function's region.
            code: the API's `Code`: `ZipFile` (base64) or `S3Bucket` and `S3Key`.

        Raises:
            CodeError: the code cannot be read or is not a safe zip file.
        """
        with tempfile.TemporaryFile() as package:
            self._fetch(region, code, package)
            with self._unpacking:
                return self._unpacked(package)

    def bind(self, region: str, name: str, folder: Path) -> None:
        """Make a function run from a folder that `unpack` made; delete its former folder if no function uses it."""
        self.remove(region, name, keep=folder)
        self._by_function[region, name] = folder

    def get(self, region: str, name: str) -> Path | None:
        """Return the folder of a function's code; None for an unknown function."""
        return self._by_function.get((region, name))

    def remove(self, region: str, name: str, *, keep: Path | None = None) -> None:
        """Forget a function; delete its folder unless another function uses it or the folder is `keep`."""
        folder = self._by_function.pop((region, name), None)
        if folder is not None and folder != keep and folder not in self._by_function.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _fetch(self, region: str, code: Mapping[str, Any], package: BufferedRandom) -> None:
        """Write the zip file of a function's code into `package`; copy code from S3 in pieces, not as a whole."""
        if "ZipFile" in code:
            package.write(base64.b64decode(code["ZipFile"]))
            return
        if "S3Bucket" not in code:
            raise CodeError(not_emulated("Code without a zip file", "Lambda", allowed="S3Bucket and S3Key, or ZipFile"))
        version = {"VersionId": code["S3ObjectVersion"]} if "S3ObjectVersion" in code else {}
        try:
            answer = self._clients.get("s3", region).get_object(Bucket=code["S3Bucket"], Key=code["S3Key"], **version)
        except ClientError as error:
            raise CodeError(f"Code: cannot read s3://{code['S3Bucket']}/{code['S3Key']}: {error}") from None
        with answer["Body"] as body:
            if answer["ContentLength"] > UNPACKED_LIMIT_BYTES:
                raise CodeError(f"Code: {answer['ContentLength']} bytes packed; Lambda takes {UNPACKED_LIMIT_BYTES}")
            shutil.copyfileobj(body, package)

    def _unpacked(self, package: BufferedRandom) -> Path:
        package.seek(0)
        folder = self._folder / hashlib.file_digest(package, "sha256").hexdigest()[:16]
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                with zipfile.ZipFile(package) as archive:
                    _check_members(archive)
                    archive.extractall(partial)
            except zipfile.BadZipFile as error:
                raise CodeError(f"Code: it is no zip file ({error})") from None
            partial.rename(folder)
        return folder


def _check_members(archive: zipfile.ZipFile) -> None:
    """Reject a zip archive whose members would lie outside of its folder, or that is larger than Lambda allows.

    Raises:
        CodeError: the archive is rejected; the text names the member or the size.
    """
    if len(archive.infolist()) > MEMBERS:
        raise CodeError(f"Code: {len(archive.infolist())} files; this emulation takes {MEMBERS}")
    total = sum(member.file_size for member in archive.infolist())
    if total > UNPACKED_LIMIT_BYTES:
        raise CodeError(f"Code: {total} bytes unpacked; Lambda takes {UNPACKED_LIMIT_BYTES}")
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        is_link = stat.S_IFMT(member.external_attr >> 16) == SYMLINK
        if path.is_absolute() or ".." in path.parts or is_link:
            raise CodeError(f"Code: unsafe member '{member.filename}'")
