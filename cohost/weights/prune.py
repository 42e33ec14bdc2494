"""Find the users of pushed weights: models added to a running endpoint, the catalog, and deployed stacks.

A revision in the weights' bucket is unused if no entry of the catalog and no archive of a deployed stack names it.
"""

from __future__ import annotations

import io
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.compose import LEAST_PART_BYTES, WEIGHTS_OF
from cohost.archives.errors import ArtifactError
from cohost.archives.properties import loads
from cohost.archives.weights import MODEL_ID, Revision, revision_at
from cohost.catalog.serving import packed_revision, pushed_revision
from cohost.endpoint.stack_outputs import outputs_of
from cohost.errors import WeightsError
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import boto3
    from mypy_boto3_s3 import S3Client

    from cohost.catalog.models import Catalog, ModelEntry
    from cohost.endpoint.stack_outputs import Deployment
    from cohost.weights.store import Stored


def check_bundled(name: str, entry: ModelEntry) -> None:
    """Reject a model with `weights: archive`, since only a deployment can compose such an archive, in S3.

    Raises:
        WeightsError: the model has `weights: archive`: S3 copies the weights into the archive.
    """
    if packed_revision(entry) is not None:
        raise WeightsError(
            "weights-in-archive",
            f"models.{name}.weights",
            "is archive, and only a deploy composes such an archive, in S3 from the files of `cohost weights push`",
            allowed="hub, s3",
            fix="name models with one of these",
        )


def live_bucket(name: str, entry: ModelEntry, deployment: Deployment, s3: S3Client) -> str | None:
    """Return the bucket from which an endpoint reads a model's pushed weights; None for a model without pushed weights.

    Raises:
        WeightsError: the endpoint's role may not read a bucket with weights, or the bucket lacks the model's weights.
    """
    revision = pushed_revision(entry)
    if revision is None:
        return None
    bucket = deployment.weights_bucket
    if bucket is None:
        raise WeightsError(
            "weights-unreadable",
            f"models.{name}.weights",
            f"is {entry.weights}, and stack {deployment.stack_name} has no model with weights in S3, so its role may "
            "not read them",
            fix=f"cdk deploy {deployment.stack_name}",
        )
    if not WeightsStore(s3, bucket).is_there(revision, packed=packed_revision(entry) is not None):
        raise WeightsError(
            "weights-incomplete",
            f"models.{name}",
            f"no complete upload of {revision} is in {bucket}",
            fix=f"cohost weights push {name}",
        )
    return bucket


_OUTPUTS: Final = ("EndpointName", "BucketName", "Prefix")
"""The outputs that every stack with archives has, of any design and deployed by any version of the project."""

_ARCHIVE: Final = ".tar.gz"
_PROPERTIES: Final = "serving.properties"


@dataclass(frozen=True, kw_only=True)
class Use:
    """A revision in the weights' bucket, and its users: models of a catalog, and archives of deployed stacks."""

    stored: Stored
    models: tuple[str, ...]
    deployed: tuple[str, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """Return a text for each user, such as "catalog: minilm"."""
        return (*(f"catalog: {name}" for name in self.models), *self.deployed)


def uses(stored: Iterable[Stored], catalog: Catalog, bucket: str, session: boto3.Session) -> list[Use]:
    """Return each stored revision's users: the catalog's models, and archives of stacks in the session's region.

    Raises:
        WeightsError: the stacks or their archives cannot be read, so no revision is known to be unused.
    """
    deployed: dict[Revision, set[str]] = defaultdict(set)
    named: dict[Revision, list[str]] = defaultdict(list)
    for name, entry in catalog.models.items():
        if (revision := pushed_revision(entry)) is not None:
            named[revision].append(name)
    try:
        for user, needed in _archives(bucket, session):
            deployed[needed].add(user)
    except (ClientError, BotoCoreError, ArtifactError, tarfile.TarError, OSError, UnicodeDecodeError) as error:
        raise WeightsError(
            "archives-unreadable",
            "the archives of the deployed stacks",
            f"cannot be read ({error}), so nothing here is known to be unused",
            fix="allow cloudformation:DescribeStacks, and reading and listing the stacks' buckets",
        ) from error
    return [
        Use(stored=one, models=tuple(named[one.revision]), deployed=tuple(sorted(deployed[one.revision])))
        for one in stored
    ]


def _archives(bucket: str, session: boto3.Session) -> Iterator[tuple[str, Revision]]:
    """For each archive of each stack in the region, yield "stack: archive" and each revision that the archive names."""
    s3 = session.client("s3")
    for stack, outputs in _stacks(session):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=outputs["BucketName"], Prefix=outputs["Prefix"])
        for item in [item for page in pages for item in page.get("Contents", [])]:
            key = item["Key"]
            if key.endswith(_ARCHIVE) and not _holds_weights(s3, outputs["BucketName"], key, item["Size"]):
                for revision in _named_in(s3, outputs["BucketName"], key, bucket):
                    yield f"{stack}: {key.removeprefix(outputs['Prefix'])}", revision


def _stacks(session: boto3.Session) -> Iterator[tuple[str, Mapping[str, str]]]:
    for page in session.client("cloudformation").get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            outputs = outputs_of(stack)
            if all(name in outputs for name in _OUTPUTS):
                yield stack["StackName"], outputs


def _holds_weights(s3: S3Client, archives: str, key: str, size: int) -> bool:
    """Return True if an archive contains its weights; such an archive names no pushed weights and need not be read.

    Only an archive of at least LEAST_PART_BYTES can contain weights, so a smaller one is judged without a request.
    """
    return size >= LEAST_PART_BYTES and WEIGHTS_OF in s3.head_object(Bucket=archives, Key=key)["Metadata"]


def _named_in(s3: S3Client, archives: str, key: str, bucket: str) -> set[Revision]:
    """Return the revisions of pushed weights that an archive names; a scale-to-zero archive may name several."""
    data = s3.get_object(Bucket=archives, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        files = [tar.extractfile(member) for member in tar if member.name.rpartition("/")[2] == _PROPERTIES]
        texts = [file.read().decode("ascii") for file in files if file is not None]
    found = {revision_at(loads(text).get(MODEL_ID, ""), bucket) for text in texts}
    return {revision for revision in found if revision is not None}
