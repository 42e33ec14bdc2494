"""Upload one file as one object, in parts with checksums that S3 verifies; resume an interrupted upload.

boto3's own transfer cannot resume: it aborts an upload that fails, and sends the whole file again. If 5 of 20 parts are
missing, s3transfer 0.19.3 sends 20 parts, and this module sends 5. The upload of a model of 2.3 GB takes half an hour
at 10 Mbit/s.

The checksums of the file and of its parts are compared with those that S3 stores.
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
"""The largest number of parts in one upload to S3 (user guide: multipart upload limits)."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file in the bucket: size in bytes, SHA-256 (hexadecimal), bytes per part, and the checksum that S3 stores.

    `checksum` is, in Base64, the SHA-256 of the file's bytes; if the file has several parts, it is the SHA-256 of the
    parts' digests (S3: composite checksum).
    """

    size: int
    sha256: str
    part_bytes: int
    checksum: str


@dataclass(frozen=True, kw_only=True)
class Checksums:
    """The checksums of a local file: those of the whole object in S3, and the checksum of each part, in order."""

    stored: StoredFile
    parts: tuple[str, ...]


def checksums_of(path: Path, *, part_bytes: int = PART_BYTES, on_bytes: Callable[[int], None]) -> Checksums:
    """Read a file once and return its checksums; call `on_bytes` with the number of bytes of each part read."""
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
    """Return a digest in Base64, the form in which S3 states checksums."""
    return base64.b64encode(digest).decode("ascii")


SHA256: Final = "cohost-sha256"
"""Key of the user metadata with the whole file's SHA-256, 64 hexadecimal digits."""

_THREADS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Uploader:
    """The upload of files to a bucket.

    `on_bytes` is called, from any thread, with a number of bytes that were sent or were in the bucket already.
    """

    s3: S3Client
    bucket: str
    on_bytes: Callable[[int], None] = field(default=lambda _count: None)

    def holds(self, key: str, wanted: StoredFile) -> bool:
        """Return True if an object has the content `wanted`: same size, SHA-256 in metadata, and S3 checksum."""
        there = head_object(self.s3, self.bucket, key, ChecksumMode="ENABLED")
        if there is None:
            return False
        kept = there.get("ChecksumSHA256")
        return (
            there["ContentLength"] == wanted.size
            and there["Metadata"].get(SHA256) == wanted.sha256
            # S3 appends "-" and the number of parts to a composite checksum.
            and (kept is None or kept.partition("-")[0] == wanted.checksum)
        )

    def metadata(self, key: str) -> Mapping[str, str] | None:
        """Return the user metadata of an object; None if there is no object at this key."""
        there = head_object(self.s3, self.bucket, key)
        return None if there is None else there["Metadata"]

    def upload(self, path: Path, key: str, sums: Checksums, metadata: Mapping[str, str] = MappingProxyType({})) -> int:
        """Upload a file to `key`, and return the number of bytes sent: 0 if the object has that content already.

        `metadata` is stored as user metadata of the object, together with the file's SHA-256. After an interruption,
        the parts that were sent stay in S3, and the next call sends only the missing parts.

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
                # Parts that are being sent are completed, so the next call need not send them; others are not begun.
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        parts = [part for part, _ in sent]
        self.s3.complete_multipart_upload(
            Bucket=self.bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )
        if resumed and self.metadata(key) != metadata:
            # The metadata of an object is that from the start of its upload. The resumed upload was started for other
            # content, so the object would have that content's metadata.
            self.s3.delete_object(Bucket=self.bucket, Key=key)
            return self._send_parts(path, key, sums, metadata)
        return sum(count for _, count in sent)

    def _begin(self, key: str, metadata: Mapping[str, str]) -> str:
        return self.s3.create_multipart_upload(
            Bucket=self.bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata=metadata
        )["UploadId"]

    def _open_upload(self, key: str) -> str | None:
        """Return the id of the latest unfinished multipart upload of this key; None if there is none."""
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
        """Send one part of the file, unless S3's part `there` has the same content; return the part and bytes sent."""
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
    # If S3 lists no checksum, the ETag is compared: it is the part's MD5 unless the part is encrypted with a KMS key.
    return str(there.get("ETag", "")).strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()
