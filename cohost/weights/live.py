"""Are the weights of a model there that is about to be added to a running endpoint?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.render import packed_revision, pushed_revision
from cohost.weights.errors import WeightsError
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cohost.catalog.models import ModelEntry
    from cohost.deployment import Deployment


def check_bundled(name: str, entry: ModelEntry) -> None:
    """Whether an archive can be written outside S3.

    Raises:
        WeightsError: it holds weights, which are put into it in S3.
    """
    if packed_revision(entry) is not None:
        raise WeightsError(
            f"models.{name}: has weights: archive, and the deploy puts that archive together in S3 from what `cohost "
            "weights push` uploaded; allowed: models with weights: hub or s3; fix: name those"
        )


def live_bucket(name: str, entry: ModelEntry, deployment: Deployment, s3: S3Client) -> str | None:
    """The bucket that an endpoint may read pushed weights from, for a model that has some; None for any other.

    Raises:
        WeightsError: the endpoint has no rights on any such bucket, or the model's weights are not in it.
    """
    revision = pushed_revision(entry)
    if revision is None:
        return None
    bucket = deployment.weights_bucket
    if bucket is None:
        raise WeightsError(
            f"models.{name}: has weights: {entry.weights}, and no model that {deployment.stack_name} deployed has "
            f"weights in S3, so its role may not read them; fix: cdk deploy {deployment.stack_name}"
        )
    if not WeightsStore(s3, bucket).is_there(revision, packed=packed_revision(entry) is not None):
        raise WeightsError(
            f"models.{name}: no whole upload of {revision} is in {bucket}; fix: cohost weights push {name}"
        )
    return bucket
