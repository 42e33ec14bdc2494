"""The stack of the weights' bucket, which must exist before weights are pushed, and so before any endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk

from cohost.weights.store import bucket_name
from constructs_lib.storage.buckets import WeightsBucket
from stacks.parts import CatalogStack

if TYPE_CHECKING:
    from constructs import Construct

    from cohost.catalog.models import Catalog


class LmiCohostWeightsStack(CatalogStack):
    """The stack of the one bucket for the weights of all endpoints in an account and region.

    Raises:
        CatalogError: settings of the catalog contradict each other.
    """

    def __init__(self, scope: Construct, construct_id: str, *, catalog: Catalog, **kwargs: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            catalog=catalog,
            description="lmi-cohost: weights that endpoints load from S3",
            **kwargs,
        )
        bucket = WeightsBucket(
            self,
            "Weights",
            bucket_name=bucket_name(self.account, self.region),
            keep_on_destroy=catalog.storage.on_destroy == "keep",
            kms_key=catalog.storage.kms_key,
        )
        cdk.CfnOutput(self, "WeightsBucketName", value=bucket.bucket_name)


def needs_weights_stack(catalog: Catalog) -> bool:
    """Return True if a catalog's models have their weights in a bucket that this project creates."""
    return catalog.storage.weights_bucket is None and any(entry.pushed for entry in catalog.models.values())
