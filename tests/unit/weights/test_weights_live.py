"""A model with pushed weights, added to a running endpoint by `cohost push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused
from weights_models import BUCKET, REVISION, entry_of

from cohost.endpoint.stack_outputs import Deployment
from cohost.errors import WeightsError
from cohost.weights.prune import live_bucket

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def deployment(weights_bucket: str | None) -> Deployment:
    """Return a stack with these outputs."""
    outputs = {
        "EndpointName": "e",
        "BucketName": "archives",
        "Prefix": "models/",
        "Generation": "0123456789ab",
        "ModelDataUrl": "s3://archives/models/0123456789ab/",
        "Region": "us-east-1",
        "Topology": "multi-model",
        "Models": "{}",
        **({"WeightsBucket": weights_bucket} if weights_bucket else {}),
    }
    return Deployment.from_outputs("LmiCohostStack", outputs)


@pytest.mark.parametrize(("weights", "key"), [("s3", REVISION.manifest), ("archive", REVISION.packed)])
def test_whole_weights_are_taken(weights: str, key: str, s3: S3Client) -> None:
    """Complete weights are accepted in the bucket that the endpoint's role may read."""
    s3.put_object(Bucket=BUCKET, Key=key, Body=b"{}")
    assert live_bucket("nli", entry_of(weights=weights), deployment(BUCKET), s3) == BUCKET


def test_weights_from_the_hub_need_no_bucket(s3: S3Client) -> None:
    """A catalog with weights from the Hub sends no request to S3."""
    assert live_bucket("nli", entry_of(weights="hub"), deployment(None), s3) is None


def test_missing_weights_are_refused(s3: S3Client) -> None:
    """An archive is rejected before its weights are pushed, or if they were pushed for the other way."""
    s3.put_object(Bucket=BUCKET, Key=REVISION.packed, Body=b"{}")
    with refused("weights-incomplete", "models.nli", kind=WeightsError):
        live_bucket("nli", entry_of(), deployment(BUCKET), s3)


def test_endpoint_without_rights_is_refused(s3: S3Client) -> None:
    """A push to a stack without weights in S3 is rejected, because its role cannot read them."""
    with refused("weights-unreadable", "models.nli.weights", kind=WeightsError):
        live_bucket("nli", entry_of(), deployment(None), s3)
