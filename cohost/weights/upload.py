"""Upload of one file as one object: in parts, each with a checksum that S3 verifies; an interrupted one is resumed.

boto3's own transfer cannot resume: it aborts an upload that fails, and sends all of the file again (s3transfer 0.19.3:
20 of 20 parts, where this module sends the 5 missing ones). A model of 2.3 GB takes half an hour at 10 Mbit/s.

The checksums are those that S3 keeps: of the whole file, and of its parts.
"""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cohost.archives.bucket import head_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


PART_BYTES: Final = 16 * 1024 * 1024
MOST_PARTS: Final = 10_000
"""S3's limit of parts in one upload (User guide: multipart upload limits)."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Size and digests of a file in the bucket: the SHA-256 of its bytes (hexadecimal), and S3's checksum.

    S3's checksum is that of the file's bytes, or if it was uploaded in parts, of their digests (S3: composite).
    """

    size: int
    sha256: str
    part_bytes: int
    checksum: str


@dataclass(frozen=True, kw_only=True)
class Checksums:
    """A file as it will be in the bucket, and S3's checksum of each of its parts, in order."""

    stored: StoredFile
    parts: tuple[str, ...]


def checksums_of(path: Path, *, part_bytes: int = PART_BYTES, on_bytes: Callable[[int], None]) -> Checksums:
    """Read a file once and return its checksums; `on_bytes` is called with the number of bytes of each part."""
    size = path.stat().st_size
    part_bytes = max(part_bytes, -(-size // MOST_PARTS))
    whole, digests = hashlib.sha256(), []
    with path.open("rb") as file:
        for piece in iter(partial(file.read, part_bytes), b""):
            whole.update(piece)
            digests.append(hashlib.sha256(piece).digest())
            on_bytes(len(piece))
    of_all = hashlib.sha256(b"".join(digests)) if len(digests) > 1 else whole
    stored = StoredFile(size=size, sha256=whole.hexdigest(), part_bytes=part_bytes, checksum=encoded(of_all.digest()))
    return Checksums(stored=stored, parts=tuple(map(encoded, digests)))


def encoded(digest: bytes) -> str:
    """Encode a digest as S3 writes it."""
    return base64.b64encode(digest).decode("ascii")


SHA256: Final = "cohost-sha256"
"""The user metadata with the whole file's SHA-256, 64 hexadecimal digits."""

_THREADS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Uploader:
    """An upload of files to a bucket.

    `on_bytes` is called, from any thread, with the number of bytes that were sent or found in the bucket.
    """

    s3: S3Client
    bucket: str
    on_bytes: Callable[[int], None] = field(default=lambda _count: None)

    def holds(self, key: str, wanted: StoredFile) -> bool:
        """Return True if an object has this content, by its size, the SHA-256 in its metadata and S3's checksum."""
        there = head_object(self.s3, self.bucket, key, ChecksumMode="ENABLED")
        if there is None:
            return False
        kept = there.get("ChecksumSHA256")
        return (
            there["ContentLength"] == wanted.size
            and there["Metadata"].get(SHA256) == wanted.sha256
            # S3 puts the number of parts behind the checksum of a composite.
            and (kept is None or kept.partition("-")[0] == wanted.checksum)
        )

    def metadata(self, key: str) -> Mapping[str, str] | None:
        """Return the user metadata of an object; None if there is none at this key."""
        there = head_object(self.s3, self.bucket, key)
        return None if there is None else there["Metadata"]

    def upload(self, path: Path, key: str, sums: Checksums, metadata: Mapping[str, str] = MappingProxyType({})) -> int:
        """Give the object the file's content, and return the number of bytes that were sent for it.

        `metadata` is kept with it, beside the file's SHA-256.

        After an interruption the parts in the bucket stay there, and another call sends only the others.

        Raises:
            ClientError, BotoCoreError: S3 refuses or cannot be reached.
        """
        stored = sums.stored
        if self.holds(key, stored):
            self.on_bytes(stored.size)
            return 0
        metadata = {SHA256: stored.sha256, **metadata}
        if len(sums.parts) > 1:
            return self._send_parts(path, key, sums, metadata)
        self.s3.put_object(
            Bucket=self.bucket,
            Key=key,
            Body=path.read_bytes(),
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=stored.checksum,
            Metadata=metadata,
        )
        self.on_bytes(stored.size)
        return stored.size

    def _send_parts(self, path: Path, key: str, sums: Checksums, metadata: Mapping[str, str]) -> int:
        resumed = self._open_upload(key)
        upload_id = resumed or self._begin(key, metadata)
        pages = self.s3.get_paginator("list_parts").paginate(Bucket=self.bucket, Key=key, UploadId=upload_id)
        there = {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}
        send = partial(self._send_part, path, key, upload_id, sums)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="part") as pool:
            futures = [pool.submit(send, number, there.get(number, {})) for number in range(1, len(sums.parts) + 1)]
            try:
                sent = [future.result() for future in futures]
            except BaseException:
                # Parts that are being sent arrive and count for the next attempt; waiting ones are not begun.
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        parts = [part for part, _ in sent]
        self.s3.complete_multipart_upload(
            Bucket=self.bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )
        if resumed and self.metadata(key) != metadata:
            # S3 keeps the metadata from the start of an upload. This upload was started for other content, so the
            # object would have the metadata of that content.
            self.s3.delete_object(Bucket=self.bucket, Key=key)
            return self._send_parts(path, key, sums, metadata)
        return sum(count for _, count in sent)

    def _begin(self, key: str, metadata: Mapping[str, str]) -> str:
        return self.s3.create_multipart_upload(
            Bucket=self.bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata=metadata
        )["UploadId"]

    def _open_upload(self, key: str) -> str | None:
        """Return the latest upload of this key that was begun and has not ended."""
        pages = self.s3.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=key)
        begun = [
            upload
            for page in pages
            for upload in page.get("Uploads", [])
            if upload["Key"] == key and upload.get("ChecksumAlgorithm") == "SHA256"
        ]
        latest = max(begun, key=lambda upload: upload["Initiated"], default=None)
        return latest["UploadId"] if latest else None

    def _send_part(
        self, path: Path, key: str, upload_id: str, sums: Checksums, number: int, there: Mapping[str, Any]
    ) -> tuple[CompletedPartTypeDef, int]:
        """Send a part; return it and the number of bytes, 0 if the part in the bucket is the same."""
        with path.open("rb") as file:
            file.seek((number - 1) * sums.stored.part_bytes)
            content = file.read(sums.stored.part_bytes)
        checksum, count = sums.parts[number - 1], 0
        if not _is_same(content, checksum, there):
            count = len(content)
            there = self.s3.upload_part(
                Bucket=self.bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=content,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=checksum,
            )
        self.on_bytes(len(content))
        return {"PartNumber": number, "ETag": there["ETag"], "ChecksumSHA256": checksum}, count


def _is_same(content: bytes, checksum: str, there: Mapping[str, Any]) -> bool:
    if there.get("Size") != len(content):
        return False
    if "ChecksumSHA256" in there:
        return bool(there["ChecksumSHA256"] == checksum)
    # Where S3 lists no checksum, the ETag of a part is its MD5 unless it is encrypted with a key of KMS.
    return str(there.get("ETag", "")).strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()
