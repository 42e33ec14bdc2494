"""The few S3 calls that the store needs, with errors that say what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

DIGEST = "cohost-digest"
"""The user metadata (x-amz-meta-…) that every archive written here carries, with its content digest."""
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
"""The codes of S3 that say that no object lies at a key."""

_DELETE_AT_ONCE = 1000
# Below botocore's pool of ten connections.
_THREADS = 8
_FIXES = {
    "AccessDenied": "allow s3:ListBucket on the bucket and s3:GetObject, PutObject and DeleteObject below the prefix",
    "403": "allow s3:ListBucket on the bucket and s3:GetObject below the prefix",
    "NoSuchBucket": "deploy the stack that makes the bucket first",
}


class MissingBucketError(ArtifactError):
    """The bucket does not exist (any more)."""


class OccupiedError(ArtifactError):
    """An object already lies where one was to be written."""


class Bucket:
    """One bucket. `checkpoint` is called before each request and may raise, so that a time limit is kept."""

    def __init__(self, client: S3Client, name: str, checkpoint: Callable[[], None]) -> None:
        self._client = client
        self._name = name
        self._checkpoint = checkpoint

    def folders(self, prefix: str) -> list[str]:
        """The names right below a prefix that have something below them."""
        return [
            folder.get("Prefix", "")[len(prefix) : -1]
            for page in self._pages(Prefix=prefix, Delimiter="/")
            for folder in page.get("CommonPrefixes", [])
        ]

    def keys(self, prefix: str) -> list[str]:
        """All keys below a prefix, in S3's order."""
        return [item["Key"] for page in self._pages(Prefix=prefix) for item in page.get("Contents", [])]

    def has(self, key: str) -> bool:
        """Whether an object of just this key is there."""
        # S3 answers 403 for a missing key to a role that may list below a prefix only, so it is not asked for.
        return key in self.keys(key)

    def digest(self, key: str) -> str | None:
        """The content digest of an archive written here; "" for an object of another origin, None for no object."""
        with self._request("read", key):
            try:
                return self._client.head_object(Bucket=self._name, Key=key)["Metadata"].get(DIGEST, "")
            except ClientError as error:
                if _code(error) in ABSENT:
                    return None
                raise

    def digests(self, keys: Sequence[str]) -> dict[str, str]:
        """The digests of the keys that exist, read in parallel."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="head") as pool:
            futures = [pool.submit(self.digest, key) for key in keys]
            try:
                found = [future.result() for future in futures]
            except BaseException:
                # Without this the pool would go on through all the rest before the error got out.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return {key: digest for key, digest in zip(keys, found, strict=True) if digest is not None}

    def put_archive(self, key: str, data: bytes, digest: str) -> None:
        """Writes an archive where nothing lies yet; what was published never changes under its name.

        Raises:
            OccupiedError: something else lies there. The same content there is no fault: a repeat after a lost answer.
        """
        try:
            with self._request("written", key):
                self._client.put_object(
                    Bucket=self._name,
                    Key=key,
                    Body=data,
                    ContentType="application/gzip",
                    Metadata={DIGEST: digest},
                    IfNoneMatch="*",
                )
        except OccupiedError:
            if self.digest(key) != digest:
                raise

    def put_mark(self, key: str, body: bytes = b"") -> None:
        """Writes a small object, over itself if need be."""
        with self._request("written", key):
            self._client.put_object(Bucket=self._name, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        """What a small object holds."""
        with self._request("read", key):
            return self._client.get_object(Bucket=self._name, Key=key)["Body"].read()

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects; one that is gone already is no fault."""
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            some = keys[start : start + _DELETE_AT_ONCE]
            with self._request("deleted", some[0]):
                answer = self._client.delete_objects(
                    Bucket=self._name, Delete={"Objects": [{"Key": key} for key in some], "Quiet": True}
                )
            # The call as a whole succeeds even if single objects could not be deleted.
            for error in answer.get("Errors", []):
                raise self._fault("deleted", error.get("Key", ""), error.get("Code", ""), error.get("Message", ""))

    def _pages(self, **options: str) -> Iterator[ListObjectsV2OutputTypeDef]:
        paginator = self._client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=self._name, **options))  # type: ignore[arg-type]
        while True:
            with self._request("listed", options["Prefix"]):
                page = next(pages, None)
            if page is None:
                return
            yield page

    @contextmanager
    def _request(self, action: str, key: str) -> Iterator[None]:
        self._checkpoint()
        try:
            yield
        except ClientError as error:
            details = error.response.get("Error", {})
            raise self._fault(action, key, _code(error), details.get("Message", "")) from error
        except BotoCoreError as error:
            raise self._fault(action, key, type(error).__name__, str(error)) from error

    def _fault(self, action: str, key: str, code: str, message: str) -> ArtifactError:
        kind = {"NoSuchBucket": MissingBucketError, "PreconditionFailed": OccupiedError}.get(code, ArtifactError)
        fix = _FIXES.get(code, "try again; if it stays so, look the code up in the S3 API reference")
        if kind is OccupiedError:
            fix = "an object that was not written here lies there; move it away"
        return kind(f"s3://{self._name}/{key}: cannot be {action} ({code}: {' '.join(message.split())}); {fix}")


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")
