"""The bucket of the weights, and the revisions of models in it, completely or partly uploaded.

The catalog may name the bucket; the default name consists of a prefix, the account and the region.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.bucket import ABSENT, delete_objects
from cohost.archives.weights import MANIFESTS, PACKED, WEIGHTS, Revision, revision_of_key
from cohost.endpoint.stack_outputs import DEFAULT_REGION
from cohost.errors import WeightsError
from cohost.weights.upload import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import boto3
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from cohost.catalog.models import Catalog


WEIGHTS_STACK: Final = "LmiCohostWeightsStack"
BUCKET_PREFIX: Final = "lmi-cohost-weights-"


def bucket_name(account: str, region: str) -> str:
    """Return the name of the bucket in LmiCohostWeightsStack; account and region may be unresolved CDK tokens."""
    return f"{BUCKET_PREFIX}{account}-{region}"


def find_bucket(catalog: Catalog, session: boto3.Session) -> str:
    """Return the name of the bucket that holds the weights of a catalog's models.

    If the catalog names no bucket, STS is asked for the account id that the default name contains.

    Raises:
        WeightsError: STS refuses the credentials, or there are none.
    """
    if catalog.storage.weights_bucket is not None:
        return catalog.storage.weights_bucket
    try:
        account = session.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise WeightsError(
            "account-unknown",
            "storage.weights_bucket",
            f"is missing, and the account's number for its default cannot be read ({error})",
            fix="set credentials and a region, e.g. AWS_PROFILE, or name the bucket in the catalog",
        ) from error
    return bucket_name(account, session.region_name or DEFAULT_REGION)


Manifest = dict[str, StoredFile]
"""The files of an uploaded revision by name. The manifest is written to the bucket after all of the files."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The objects of one revision in the bucket.

    `keys` are the objects' keys, and `size` is their total size in bytes. `uploads` are unfinished multipart uploads,
    each as (key, upload id). `whole` is True if the revision was uploaded completely.
    """

    revision: Revision
    keys: tuple[str, ...]
    size: int
    uploads: tuple[tuple[str, str], ...]
    whole: bool


class WeightsStore:
    """The weights in a bucket. Objects whose keys do not have the form that `Revision` makes are left alone.

    All methods raise WeightsError if S3 refuses or cannot be reached.
    """

    def __init__(self, s3: S3Client, bucket: str) -> None:
        self.s3 = s3
        self.bucket = bucket

    @contextmanager
    def explaining(self, uri: str, problem: str) -> Iterator[None]:
        """Convert boto3's errors in the `with` block to WeightsErrors, which name `uri`, an object or the bucket."""
        try:
            yield
        except ClientError as error:
            raise self._refusal(uri, problem, error) from error
        except BotoCoreError as error:
            raise WeightsError(
                "weights-store-unreachable",
                uri,
                f"{problem} ({error})",
                fix="check network and credentials, and run the command again",
            ) from error

    def manifest(self, revision: Revision) -> Manifest | None:
        """Return the manifest's files if a revision was uploaded completely as single files, otherwise None."""
        uri = f"s3://{self.bucket}/{revision.manifest}"
        with self.explaining(uri, "cannot be read"):
            try:
                body = self.s3.get_object(Bucket=self.bucket, Key=revision.manifest)["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in ABSENT:
                    return None
                raise
        try:
            files = json.loads(body)["files"]
            return {name: StoredFile(**facts) for name, facts in files.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(
                "manifest-invalid",
                uri,
                f"is not a manifest ({error})",
                fix="delete the object and run `cohost weights push` again",
            ) from error

    def is_there(self, revision: Revision, *, packed: bool) -> bool:
        """Return True if a revision was uploaded completely: as single files, or as an archive's part if `packed`."""
        key = revision.packed if packed else revision.manifest
        return key in self.keys(key)

    def write_manifest(self, revision: Revision, files: Manifest) -> None:
        """Write the manifest of a revision, which marks the revision as complete."""
        content = {
            "model_id": revision.model_id,
            "revision": revision.revision,
            "files": {name: vars(files[name]) for name in sorted(files)},
        }
        body = json.dumps(content, indent=1).encode()
        with self.explaining(f"s3://{self.bucket}/{revision.manifest}", "cannot be written"):
            self.s3.put_object(
                Bucket=self.bucket, Key=revision.manifest, Body=body, ContentType="application/json",
                ChecksumAlgorithm="SHA256",
            )  # fmt: skip

    def keys(self, prefix: str) -> dict[str, int]:
        """Return the keys that begin with a prefix, each with its object's size in bytes."""
        with self.explaining(f"s3://{self.bucket}/{prefix}", "cannot be listed"):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}

    def revisions(self) -> list[Stored]:
        """Return all revisions in the bucket, completely or partly uploaded, sorted by model and revision."""
        objects = {key: size for prefix in (WEIGHTS, MANIFESTS, PACKED) for key, size in self.keys(prefix).items()}
        uploads = self._uploads()
        found = {revision for key in [*objects, *(key for key, _ in uploads)] if (revision := revision_of_key(key))}
        return [_stored(revision, objects, uploads) for revision in sorted(found)]

    def delete(self, stored: Stored) -> None:
        """Delete a revision. The manifest is deleted first, so that the remaining files never count as complete."""
        with self.explaining(stored.revision.uri(self.bucket), "cannot be removed"):
            self.s3.delete_object(Bucket=self.bucket, Key=stored.revision.manifest)
            for key, upload_id in stored.uploads:
                self.s3.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
        self.delete_keys(stored.keys)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Delete objects by their keys; a key without an object is not an error."""
        objects: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys]
        delete_objects(
            self.s3, self.bucket, objects, lambda key: self.explaining(f"s3://{self.bucket}/{key}", "cannot be removed")
        )

    def _uploads(self) -> tuple[tuple[str, str], ...]:
        with self.explaining(f"s3://{self.bucket}", "its uploads cannot be listed"):
            pages = self.s3.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
            return tuple((upload["Key"], upload["UploadId"]) for page in pages for upload in page.get("Uploads", []))

    def _refusal(self, uri: str, problem: str, error: ClientError) -> WeightsError:
        details = error.response.get("Error", {})
        reason = details.get("Message") or error
        match details.get("Code"):
            case "NoSuchBucket":
                make = f"run `cdk deploy {WEIGHTS_STACK}`, which makes"
                if not self.bucket.startswith(BUCKET_PREFIX):
                    make = f"make the bucket, or leave storage.weights_bucket out and {make}"
                return WeightsError("weights-store-missing", uri, f"{problem} ({reason})", fix=f"{make} one")
            case "AccessDenied" | "403":
                return WeightsError(
                    "weights-store-denied",
                    uri,
                    f"{problem} ({reason})",
                    fix=f"allow reading, writing, listing and deleting in the bucket {self.bucket!r}",
                )
        return WeightsError(
            "weights-store-failed",
            uri,
            f"{problem} ({reason})",
            fix="run the command again; uploaded parts are not sent again",
        )


def _stored(revision: Revision, objects: Mapping[str, int], uploads: Sequence[tuple[str, str]]) -> Stored:
    keys = tuple(key for key in objects if key.startswith(revision.prefix) or key == revision.packed)
    facts: dict[str, Any] = {
        "size": sum(objects[key] for key in keys),
        "uploads": tuple(upload for upload in uploads if revision_of_key(upload[0]) == revision),
    }
    whole = bool({revision.manifest, revision.packed} & objects.keys())
    return Stored(revision=revision, keys=keys, whole=whole, **facts)
