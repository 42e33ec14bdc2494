"""The S3 calls of the model store, with errors that name the fix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from .errors import ArtifactError, MissingBucketError, OccupiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import (
        HeadObjectOutputTypeDef,
        ListObjectsV2OutputTypeDef,
        ObjectIdentifierTypeDef,
    )

DIGEST = "cohost-digest"
"""The user metadata key (x-amz-meta-…) of an archive's content digest; every archive that lmi-cohost writes has it."""
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
"""The error codes with which S3 answers a request for a key without an object."""

_DELETE_AT_ONCE = 1000
# Fewer requests at a time than botocore's pool has connections (ten).
_THREADS = 8
_FIXES = {
    "AccessDenied": "allow s3:ListBucket on the bucket and s3:GetObject, PutObject and DeleteObject below the prefix",
    "403": "allow s3:ListBucket on the bucket and s3:GetObject below the prefix",
}


def head_object(client: S3Client, bucket: str, key: str, **options: Any) -> HeadObjectOutputTypeDef | None:
    """Return S3's HeadObject answer for a key; None if the key has no object.

    Raises:
        ClientError: S3 refuses the request.
    """
    try:
        return client.head_object(Bucket=bucket, Key=key, **options)
    except ClientError as error:
        if _code(error) in ABSENT:
            return None
        raise


def delete_objects(
    client: S3Client,
    bucket: str,
    objects: Sequence[ObjectIdentifierTypeDef],
    request: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Delete objects or object versions, 1000 per request; an object that no longer exists is not an error.

    Args:
        client: the S3 client.
        bucket: the bucket's name.
        objects: the keys, each with or without a version id.
        request: returns the context manager for a request about a key; that may replace the request's ClientError.

    Raises:
        ClientError: S3 refuses a request, or the deletion of a single object.
    """
    for start in range(0, len(objects), _DELETE_AT_ONCE):
        some = objects[start : start + _DELETE_AT_ONCE]
        with request(some[0]["Key"]):
            answer = client.delete_objects(Bucket=bucket, Delete={"Objects": some, "Quiet": True})
        # The call as a whole succeeds even if single objects could not be deleted.
        for error in answer.get("Errors", []):
            with request(error.get("Key", "")):
                raise ClientError(
                    {"Error": {"Code": error.get("Code", ""), "Message": error.get("Message", "")}}, "DeleteObjects"
                )


class Bucket:
    """One S3 bucket.

    `checkpoint` is called before each request to S3; to keep a time limit, it raises an exception that stops the work.
    """

    def __init__(self, client: S3Client, name: str, checkpoint: Callable[[], None]) -> None:
        self._client = client
        self._name = name
        self._checkpoint = checkpoint

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below a prefix."""
        return [
            folder.get("Prefix", "")[len(prefix) : -1]
            for page in self._pages(Prefix=prefix, Delimiter="/")
            for folder in page.get("CommonPrefixes", [])
        ]

    def keys(self, prefix: str) -> list[str]:
        """Return all keys below a prefix, in S3's order."""
        return [item["Key"] for page in self._pages(Prefix=prefix) for item in page.get("Contents", [])]

    def has(self, key: str) -> bool:
        """Return True if an object has exactly this key."""
        # HeadObject of a missing key is answered with 403 if the role's s3:ListBucket is limited to a prefix.
        return key in self.keys(key)

    def digest(self, key: str) -> str | None:
        """Return the content digest of the archive at a key; "" for any other object, None for no object."""
        with self._request("read", key):
            found = head_object(self._client, self._name, key)
        return None if found is None else found["Metadata"].get(DIGEST, "")

    def digests(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the content digest (`digest`) of each key that has an object; the requests run in parallel."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="head") as pool:
            futures = [pool.submit(self.digest, key) for key in keys]
            try:
                found = [future.result() for future in futures]
            except BaseException:
                # Without this call the pool would send all remaining requests before the error is raised.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return {key: digest for key, digest in zip(keys, found, strict=True) if digest is not None}

    def put_archive(self, key: str, data: bytes, digest: str) -> None:
        """Write an archive, but never over other content, because a published archive never changes under its name.

        Raises:
            OccupiedError: the key has an object of other content. The same content is not an error, since boto3 repeats
                a request whose answer was lost.
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
        """Write a small object; an existing object is overwritten."""
        with self._request("written", key):
            self._client.put_object(Bucket=self._name, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        """Return the content of a small object."""
        with self._request("read", key):
            return self._client.get_object(Bucket=self._name, Key=key)["Body"].read()

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; an object that no longer exists is not an error."""
        delete_objects(self._client, self._name, [{"Key": key} for key in keys], partial(self._request, "deleted"))

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
        uri = f"s3://{self._name}/{key}"
        problem = f"cannot be {action} ({code}: {' '.join(message.split())})"
        if code == "NoSuchBucket":
            return MissingBucketError("bucket-missing", uri, problem, fix="deploy the stack with the bucket first")
        if code == "PreconditionFailed":
            return OccupiedError("archive-occupied", uri, problem, fix="move the object, which was not written here")
        fix = _FIXES.get(code, "try again; if the error stays, look its code up in the S3 API reference")
        return ArtifactError("store-request-failed", uri, problem, fix=fix)


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")
