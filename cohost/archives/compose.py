"""Archives with weights from the weights bucket: S3 copies the weights, so the Lambda function never downloads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bucket import DIGEST, Bucket
from .packed import part_of, tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, HeadObjectOutputTypeDef

    from .packed import Part

MIB = 1024 * 1024
LEAST_PART_BYTES = 5 * MIB
"""S3's minimum size of a multipart upload's part, the last part excepted (User Guide: multipart upload limits)."""
COPY_BYTES = 512 * MIB
WEIGHTS_OF = "cohost-weights-of"
"""The user metadata key of an archive that S3 composed; its value is the key of the object with the weights."""


class ComposingBucket(Bucket):
    """A bucket to which archives are written, including archives with weights that S3 copies from another bucket."""

    def put_composed(self, key: str, files: Mapping[str, bytes], digest: str) -> None:
        """Write an archive of small files and of weights that S3 copies, unless the key already has this archive.

        Raises:
            ValueError: `files` has no location of weights (`with_part`).
            ArtifactError: the weights do not exist, or S3 refuses a request.
            OccupiedError: the key has an object of other content.
        """
        part = part_of(files)
        if part is None:
            raise ValueError(f"{key}: an archive of files only")
        if self.has(key):
            if self.digest(key) != digest:
                raise self._fault("written", key, "PreconditionFailed", "something else lies there")
            return
        source = ComposingBucket(self._client, part.bucket, self._checkpoint)
        facts = source.facts(part.key)
        ending = tail(files, facts["Metadata"])
        if facts["ContentLength"] < LEAST_PART_BYTES:
            self.put_archive(key, source.get(part.key) + ending, digest)
        else:
            self._compose(key, part, facts, ending, digest)

    def facts(self, key: str) -> HeadObjectOutputTypeDef:
        """Return S3's HeadObject answer for an object, with its size, ETag and metadata."""
        with self._request("read", key):
            return self._client.head_object(Bucket=self._name, Key=key)

    def _compose(self, key: str, part: Part, facts: HeadObjectOutputTypeDef, ending: bytes, digest: str) -> None:
        with self._request("written", key):
            upload_id = self._client.create_multipart_upload(
                Bucket=self._name,
                Key=key,
                ContentType="application/gzip",
                Metadata={DIGEST: digest, WEIGHTS_OF: part.key},
                # boto3 sends a checksum with each part, whose algorithm must be the one that is stated here.
                ChecksumAlgorithm="SHA256",
            )["UploadId"]
        try:
            ranges = _ranges(facts["ContentLength"])
            parts = [
                self._copy(key, upload_id, number, part, facts["ETag"], piece) for number, piece in enumerate(ranges, 1)
            ]
            parts.append(self._send(key, upload_id, len(parts) + 1, ending))
            with self._request("written", key):
                self._client.complete_multipart_upload(
                    Bucket=self._name,
                    Key=key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    IfNoneMatch="*",
                )
        except BaseException:
            # S3 bills the uploaded parts until the upload is completed or aborted.
            self._client.abort_multipart_upload(Bucket=self._name, Key=key, UploadId=upload_id)
            raise

    def _copy(
        self, key: str, upload_id: str, number: int, part: Part, etag: str, piece: tuple[int, int]
    ) -> CompletedPartTypeDef:
        with self._request("written", key):
            answer = self._client.upload_part_copy(
                Bucket=self._name,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": part.bucket, "Key": part.key},
                CopySourceIfMatch=etag,
                CopySourceRange=f"bytes={piece[0]}-{piece[1]}",
            )["CopyPartResult"]
        return _completed(number, answer["ETag"], answer.get("ChecksumSHA256"))

    def _send(self, key: str, upload_id: str, number: int, content: bytes) -> CompletedPartTypeDef:
        with self._request("written", key):
            answer = self._client.upload_part(
                Bucket=self._name,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=content,
                ChecksumAlgorithm="SHA256",
            )
        return _completed(number, answer["ETag"], answer.get("ChecksumSHA256"))


def _completed(number: int, etag: str, checksum: str | None) -> CompletedPartTypeDef:
    """Return a part's entry for CompleteMultipartUpload.

    If S3 returned a checksum for the part, S3 also requires this checksum in the entry.
    """
    if checksum is None:
        return {"PartNumber": number, "ETag": etag}
    return {"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum}


def _ranges(size: int) -> list[tuple[int, int]]:
    """Split `size` bytes into pieces that S3 copies, and return each piece's first and last byte.

    The last piece includes the remainder, so that no piece is below S3's minimum size of an upload's part.
    """
    count = max(1, size // COPY_BYTES)
    starts = [number * COPY_BYTES for number in range(count)]
    return list(zip(starts, [*(start - 1 for start in starts[1:]), size - 1], strict=True))
