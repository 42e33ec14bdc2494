"""Are the weights of a model there that is about to be added to a running endpoint?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.render import pushed_revision
from cohost.weights.errors import WeightsError
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cohost.catalog import ModelEntry
    from cohost.deployment import Deployment


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
            f"models.{name}: has weights: s3, and no model that {deployment.stack_name} deployed has, so its role may "
            f"not read them; fix: cdk deploy {deployment.stack_name}"
        )
    if WeightsStore(s3, bucket).manifest(revision) is None:
        raise WeightsError(
            f"models.{name}: no whole upload of {revision} is in {bucket}; fix: cohost weights push {name}"
        )
    return bucket
