"""Exported archives as assets: uploaded by `cdk deploy` from the user's machine, named by their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cohost.onnx.archive import Archive

PREFIX: Final = "cohost/"
GENERATION: Final = "cpu-onnx"


class OnnxArchives(Construct):
    """The archives of design 02 in the bootstrap bucket, below a prefix of their own.

    An archive's key is its checksum, so it never changes under a name, and a changed model leaves the address of all as
    it is: SageMaker loads the new archive when it is first called for.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        archives: the exported models.
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
        """The address that SageMaker loads archives from: "s3://<bootstrap bucket>/cohost/cpu-onnx/"."""
        return f"s3://{self.bucket_name}/{PREFIX}{GENERATION}/"

    @property
    def target_models(self) -> dict[str, str]:
        """The TargetModel of each model: "<checksum>.tar.gz"."""
        start = f"{PREFIX}{GENERATION}/"
        return {name: key.removeprefix(start) for name, key in self._keys.items()}

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading these archives, each by its key, and listing what lies below the prefix."""
        keys = [self._bucket.arn_for_objects(key) for key in self._keys.values()]
        iam.Grant.add_to_principal(grantee=grantee, actions=["s3:GetObject"], resource_arns=keys)
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["s3:ListBucket"],
            resource_arns=[self._bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": f"{PREFIX}{GENERATION}/*"}},
        )

    def _locate(self, stack: cdk.Stack, archive: Archive) -> cdk.FileAssetLocation:
        """Add an archive to the stack's assets under a key of ours.

        aws_s3_assets would name it .gz, by a hash of the checksum, among all other assets of the account. SageMaker's
        documents know the archives of multi-model endpoints as .tar.gz; a key that is the content's SHA-256 can be
        checked by anybody; and a role can be given a prefix. The synthesizer puts the file's last extension behind the
        hash that it is told.
        """
        staged = cdk.AssetStaging(self, archive.name, source_path=str(archive.file), asset_hash=archive.sha256)
        return stack.synthesizer.add_file_asset(
            packaging=cdk.FileAssetPackaging.FILE,
            source_hash=f"{PREFIX}{GENERATION}/{archive.sha256}.tar",
            file_name=staged.relative_staged_path(stack),
        )
