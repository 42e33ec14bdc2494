"""The weights of models in S3 with the rights to read them, and the archives of the ONNX design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cohost.archives.weights import MANIFESTS, PACKED, WEIGHTS
from cohost.catalog.serving import packed_revision
from cohost.weights.store import bucket_name
from constructs_lib.acknowledgements import acknowledge
from constructs_lib.storage.buckets import BucketKey, grant_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cohost.catalog.models import Catalog
    from cohost.designs.onnx.archive import Archive


_S3 = "s3://"


class ModelWeights:
    """The weights of a catalog's models in S3: pushed by `cohost weights push`, or at an address that the user states.

    Args:
        scope: a construct of the stack.
        bucket: the bucket that `cohost weights push` uploads to. None if no model has its weights there.
        packed: "model id@revision" of the weights that are packed into archives, by model name.
        addresses: the addresses "s3://bucket/prefix/" of weights in a user's own buckets.
        kms_key: the ARN of the KMS key that encrypts these buckets. None if S3's own keys, or the key of the archives'
            bucket, encrypt them.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        bucket: str | None,
        packed: Mapping[str, str],
        addresses: Iterable[str],
        kms_key: str | None = None,
    ) -> None:
        self._stack = cdk.Stack.of(scope)
        self.bucket_name = bucket
        self.packed = packed
        self._key = BucketKey.of(scope, kms_key, "WeightsKey")
        places = [address.removeprefix(_S3).partition("/") for address in addresses]
        read = {(name, prefix) for name, _, prefix in places} | ({(bucket, WEIGHTS)} if bucket else set())
        self._read = sorted(read)

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading the weights and listing their keys, only below their prefixes.

        All pushed weights may be read, so that `cohost push` can add a model to a running endpoint.
        """
        for bucket, prefix in self._read:
            self._grant_objects(grantee, bucket, prefix)
            grant_list(grantee, self._arn(bucket), prefix)
        if self._key is not None:
            self._key.grant_read(grantee)

    def grant_publish(self, grantee: iam.IRole) -> None:
        """Allow listing the complete uploads and, if archives contain weights, copying the weights into them."""
        if self.bucket_name is None:
            return
        arn = self._arn(self.bucket_name)
        grant_list(grantee, arn, MANIFESTS)
        if self.packed:
            grant_list(grantee, arn, PACKED)
            self._grant_objects(grantee, self.bucket_name, PACKED)
            if self._key is not None:
                self._key.grant_read(grantee)

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
        """Return a bucket's ARN in the notation of cdk-nag's findings."""
        account, partition = self._stack.account, self._stack.partition
        shown = "<AWS::Partition>" if cdk.Token.is_unresolved(partition) else partition
        return f"arn:{shown}:s3:::{bucket.replace(account, '<AWS::AccountId>')}"


def weights_of(scope: Construct, catalog: Catalog) -> ModelWeights | None:
    """Return the weights in S3 of a catalog's models; None if all weights come from the Hub."""
    entries = catalog.models.values()
    addresses = {entry.model_id for entry in entries if entry.model_id.startswith(_S3)}
    pushed = any(entry.pushed for entry in entries)
    if not pushed and not addresses:
        return None
    stack = cdk.Stack.of(scope)
    own = catalog.storage.weights_bucket or bucket_name(stack.account, stack.region)
    revisions = {name: packed_revision(entry) for name, entry in catalog.models.items()}
    packed = {name: str(revision) for name, revision in revisions.items() if revision is not None}
    return ModelWeights(
        scope,
        bucket=own if pushed else None,
        packed=packed,
        addresses=addresses,
        kms_key=catalog.storage.weights_kms_key,
    )


PREFIX: Final = "cohost/"
GENERATION: Final = "cpu-onnx"


class OnnxArchives(Construct):
    """The archives of design 02 (ONNX on a CPU) in the CDK's bootstrap bucket, below a separate prefix.

    An archive's key contains its checksum, so the object at a key never changes. A changed model gets a new key below
    the unchanged common address, and SageMaker loads the new archive at the first call that names its key.

    Args:
        archives: the archives of the exported models.
    """

    def __init__(self, scope: Construct, construct_id: str, *, archives: Iterable[Archive]) -> None:
        super().__init__(scope, construct_id)
        stack = cdk.Stack.of(self)
        locations = {archive.name: self._locate(stack, archive) for archive in archives}
        self._keys = {name: location.object_key for name, location in locations.items()}
        self.bucket_name = next(iter(locations.values())).bucket_name
        self._bucket = s3.Bucket.from_bucket_name(self, "Bucket", self.bucket_name)

    @property
    def model_data_url(self) -> str:
        """Return the address that SageMaker loads archives from: "s3://<bootstrap bucket>/cohost/cpu-onnx/"."""
        return f"s3://{self.bucket_name}/{PREFIX}{GENERATION}/"

    @property
    def target_models(self) -> dict[str, str]:
        """Return the TargetModel of each model: "<checksum>.tar.gz"."""
        start = f"{PREFIX}{GENERATION}/"
        return {name: key.removeprefix(start) for name, key in self._keys.items()}

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading each of these archives, and listing the keys below the prefix."""
        keys = [self._bucket.arn_for_objects(key) for key in self._keys.values()]
        iam.Grant.add_to_principal(grantee=grantee, actions=["s3:GetObject"], resource_arns=keys)
        grant_list(grantee, self._bucket.bucket_arn, f"{PREFIX}{GENERATION}/")

    def _locate(self, stack: cdk.Stack, archive: Archive) -> cdk.FileAssetLocation:
        """Add an archive to the stack's assets under a key of this project.

        The module aws_s3_assets would name the archive by a hash of the checksum with the suffix .gz, among all other
        assets of the account. A key of this project has three advantages: it ends with .tar.gz, as in SageMaker's
        documents on multi-model endpoints; its SHA-256 lets anybody check the content; and a role can be given rights
        on its prefix. The CDK's synthesizer appends the file's last extension to the given hash.
        """
        staged = cdk.AssetStaging(self, archive.name, source_path=str(archive.file), asset_hash=archive.sha256)
        return stack.synthesizer.add_file_asset(
            packaging=cdk.FileAssetPackaging.FILE,
            source_hash=f"{PREFIX}{GENERATION}/{archive.sha256}.tar",
            file_name=staged.relative_staged_path(stack),
        )
