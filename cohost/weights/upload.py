"""Upload of one file as one object: in parts, each with a checksum that S3 verifies.

An interrupted upload is resumed. The checksums are those that S3 keeps: of the whole file, and of its parts.
"""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cohost.archives.bucket import head_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


PART_BYTES: Final = 16 * 1024 * 1024
MOST_PARTS: Final = 10_000
"""S3's limit of parts in one upload (User guide: multipart upload limits)."""

_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Checksums:
    """Size and digests of a file: `parts` are the SHA-256 digests of its parts in order, `sha256` is hexadecimal."""

    size: int
    sha256: str
    part_bytes: int
    parts: tuple[bytes, ...]

    @property
    def in_parts(self) -> bool:
        """Return True if the file is uploaded in parts; a smaller one is uploaded in one request."""
        return len(self.parts) > 1

    @property
    def s3(self) -> str:
        """Return the object's x-amz-checksum-sha256: of its bytes, or of its parts' digests (S3: composite)."""
        return encoded(hashlib.sha256(b"".join(self.parts)).digest() if self.in_parts else self.parts[0])


def checksums_of(path: Path, *, part_bytes: int = PART_BYTES, on_bytes: Callable[[int], None]) -> Checksums:
    """Read a file once and return its checksums; `on_bytes` is called with the number of bytes of each read."""
    size = path.stat().st_size
    part_bytes = max(part_bytes, -(-size // MOST_PARTS))
    whole = hashlib.sha256()
    parts: list[bytes] = []
    with path.open("rb") as file:
        while True:
            part, left = hashlib.sha256(), part_bytes
            while left and (piece := file.read(min(left, _READ_BYTES))):
                whole.update(piece)
                part.update(piece)
                left -= len(piece)
                on_bytes(len(piece))
            if left == part_bytes and parts:
                break
            parts.append(part.digest())
            if left:
                break
    return Checksums(size=size, sha256=whole.hexdigest(), part_bytes=part_bytes, parts=tuple(parts))


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

    def holds(self, key: str, *, size: int, sha256: str, checksum: str) -> bool:
        """Return True if an object has this content, by its size, the SHA-256 in its metadata and S3's checksum."""
        there = head_object(self.s3, self.bucket, key, ChecksumMode="ENABLED")
        if there is None:
            return False
        kept = there.get("ChecksumSHA256")
        return (
            there["ContentLength"] == size
            and there["Metadata"].get(SHA256) == sha256
            # S3 puts the number of parts behind the checksum of a composite.
            and (kept is None or kept.partition("-")[0] == checksum)
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
        if self.holds(key, size=sums.size, sha256=sums.sha256, checksum=sums.s3):
            self.on_bytes(sums.size)
            return 0
        if sums.in_parts:
            return self._send_parts(path, key, sums, metadata)
        self.s3.put_object(
            Bucket=self.bucket,
            Key=key,
            Body=path.read_bytes(),
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=sums.s3,
            Metadata={SHA256: sums.sha256, **metadata},
        )
        self.on_bytes(sums.size)
        return sums.size

    def _send_parts(self, path: Path, key: str, sums: Checksums, metadata: Mapping[str, str]) -> int:
        resumed = self._open_upload(key)
        upload_id = resumed or self._begin(key, sums, metadata)
        there = self._parts(key, upload_id)
        sender = _Parts(self, path, key, upload_id, sums)
        numbers = range(1, len(sums.parts) + 1)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="part") as pool:
            futures = [pool.submit(sender.send, number, there.get(number, {})) for number in numbers]
            try:
                sent = [future.result() for future in futures]
            except BaseException:
                # Parts that are being sent arrive and count for the next attempt; waiting ones are not begun.
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        self._complete(key, upload_id, sums, [etag for etag, _ in sent])
        if resumed:
            self._correct(key, sums, metadata)
        return sum(count for _, count in sent)

    def _complete(self, key: str, upload_id: str, sums: Checksums, etags: Sequence[str]) -> None:
        parts: list[CompletedPartTypeDef] = [
            {"PartNumber": number, "ETag": etag, "ChecksumSHA256": encoded(part)}
            for number, (etag, part) in enumerate(zip(etags, sums.parts, strict=True), 1)
        ]
        self.s3.complete_multipart_upload(
            Bucket=self.bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )

    def _correct(self, key: str, sums: Checksums, metadata: Mapping[str, str]) -> None:
        """Give an object its own metadata if its upload was begun for other content.

        S3 takes metadata when an upload begins, and does not return it for an open upload.
        """
        there = self.s3.head_object(Bucket=self.bucket, Key=key)
        if there["Metadata"] == {SHA256: sums.sha256, **metadata}:
            return
        try:
            self._copy_onto_itself(key, there["ETag"], sums, metadata)
        except BaseException:
            # An object with the metadata of other content would be taken for that content.
            self.s3.delete_object(Bucket=self.bucket, Key=key)
            raise

    def _copy_onto_itself(self, key: str, etag: str, sums: Checksums, metadata: Mapping[str, str]) -> None:
        """Copy within S3 in the same parts, so that the checksum of the whole stays and nothing is sent."""
        upload_id = self._begin(key, sums, metadata)
        try:
            etags = [
                self.s3.upload_part_copy(
                    Bucket=self.bucket,
                    Key=key,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySource={"Bucket": self.bucket, "Key": key},
                    CopySourceIfMatch=etag,
                    CopySourceRange=f"bytes={start}-{min(start + sums.part_bytes, sums.size) - 1}",
                )["CopyPartResult"]["ETag"]
                for number, start in enumerate(range(0, sums.size, sums.part_bytes), 1)
            ]
            self._complete(key, upload_id, sums, etags)
        except BaseException:
            # Parts bill until somebody ends their upload.
            self.s3.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
            raise

    def _begin(self, key: str, sums: Checksums, metadata: Mapping[str, str]) -> str:
        return self.s3.create_multipart_upload(
            Bucket=self.bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata={SHA256: sums.sha256, **metadata}
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

    def _parts(self, key: str, upload_id: str) -> dict[int, Mapping[str, Any]]:
        pages = self.s3.get_paginator("list_parts").paginate(Bucket=self.bucket, Key=key, UploadId=upload_id)
        return {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}


@dataclass(frozen=True)
class _Parts:
    """The parts of one upload, each sent by itself."""

    uploader: Uploader
    path: Path
    key: str
    upload_id: str
    sums: Checksums

    def send(self, number: int, there: Mapping[str, Any]) -> tuple[str, int]:
        """Send a part; return its ETag and the number of bytes, 0 if the part in the bucket is the same."""
        with self.path.open("rb") as file:
            file.seek((number - 1) * self.sums.part_bytes)
            content = file.read(self.sums.part_bytes)
        checksum = encoded(self.sums.parts[number - 1])
        if self._is_same(content, checksum, there):
            etag, count = str(there["ETag"]), 0
        else:
            answer = self.uploader.s3.upload_part(
                Bucket=self.uploader.bucket,
                Key=self.key,
                UploadId=self.upload_id,
                PartNumber=number,
                Body=content,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=checksum,
            )
            etag, count = answer["ETag"], len(content)
        self.uploader.on_bytes(len(content))
        return etag, count

    @staticmethod
    def _is_same(content: bytes, checksum: str, there: Mapping[str, Any]) -> bool:
        if there.get("Size") != len(content):
            return False
        if "ChecksumSHA256" in there:
            return bool(there["ChecksumSHA256"] == checksum)
        # Where S3 lists no checksum, the ETag of a part is its MD5 unless it is encrypted with a key of KMS.
        return str(there.get("ETag", "")).strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()
