"""What the stack's roles may do with weights that lie in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from cohost.artifacts.weights import MANIFESTS, PACKED, WEIGHTS
from cohost.render import packed_revision
from cohost.weights.place import bucket_name
from constructs_lib.acknowledgements import acknowledge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from constructs import Construct

    from cohost.catalog.models import Catalog

_S3 = "s3://"


class ModelWeights:
    """The weights of a catalog's models that lie in S3: pushed ones, and those under addresses of the user's own.

    Args:
        scope: a construct of the stack.
        bucket: the bucket that `cohost weights push` uploads to. None where no model has its weights there.
        packed: "model id@revision" of the weights that go into archives, by model name.
        addresses: "s3://bucket/prefix/" of models whose weights lie elsewhere.
    """

    def __init__(
        self, scope: Construct, *, bucket: str | None, packed: Mapping[str, str], addresses: Iterable[str]
    ) -> None:
        self._stack = cdk.Stack.of(scope)
        self.bucket_name = bucket
        self.packed = packed
        places = [address.removeprefix(_S3).partition("/") for address in addresses]
        read = {(name, prefix) for name, _, prefix in places} | ({(bucket, WEIGHTS)} if bucket else set())
        self._read = sorted(read)

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading the weights and listing their keys: below their prefixes only.

        All that was pushed may be read, so that `cohost push` can add a model to a running endpoint.
        """
        for bucket, prefix in self._read:
            self._grant_objects(grantee, bucket, prefix)
            _grant_list(grantee, self._arn(bucket), prefix)

    def grant_publish(self, grantee: iam.IRole) -> None:
        """Allow seeing which uploads are whole; where weights go into archives, also letting S3 copy them there."""
        if self.bucket_name is None:
            return
        arn = self._arn(self.bucket_name)
        _grant_list(grantee, arn, MANIFESTS)
        if self.packed:
            _grant_list(grantee, arn, PACKED)
            self._grant_objects(grantee, self.bucket_name, PACKED)

    def _grant_objects(self, grantee: iam.IRole, bucket: str, prefix: str) -> None:
        iam.Grant.add_to_principal(
            grantee=grantee, actions=["s3:GetObject"], resource_arns=[f"{self._arn(bucket)}/{prefix}*"]
        )
        acknowledge(
            grantee,
            "AwsSolutions-IAM5",
            finding=f"Resource::{self._shown(bucket)}/{prefix}*",
            reason="A model's weights are several files whose names its repository decides; the wildcard stays "
            "below the prefix of weights.",
        )

    def _arn(self, bucket: str) -> str:
        return f"arn:{self._stack.partition}:s3:::{bucket}"

    def _shown(self, bucket: str) -> str:
        """The bucket's ARN as cdk-nag writes it in a finding."""
        account, partition = self._stack.account, self._stack.partition
        shown = "<AWS::Partition>" if cdk.Token.is_unresolved(partition) else partition
        return f"arn:{shown}:s3:::{bucket.replace(account, '<AWS::AccountId>')}"


def weights_of(scope: Construct, catalog: Catalog) -> ModelWeights | None:
    """The weights of a catalog that lie in S3; None where all come from the Hub."""
    entries = catalog.models.values()
    addresses = {entry.model_id for entry in entries if entry.model_id.startswith(_S3)}
    pushed = any(entry.pushed for entry in entries)
    if not pushed and not addresses:
        return None
    stack = cdk.Stack.of(scope)
    own = catalog.storage.weights_bucket or bucket_name(stack.account, stack.region)
    revisions = {name: packed_revision(entry) for name, entry in catalog.models.items()}
    packed = {name: str(revision) for name, revision in revisions.items() if revision is not None}
    return ModelWeights(scope, bucket=own if pushed else None, packed=packed, addresses=addresses)


def _grant_list(grantee: iam.IGrantable, bucket_arn: str, prefix: str) -> None:
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=["s3:ListBucket"],
        resource_arns=[bucket_arn],
        conditions={"StringLike": {"s3:prefix": f"{prefix}*"}},
    )
