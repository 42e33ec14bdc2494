"""The model archives of an endpoint, published by the custom resource `Custom::LmiModelStore`.

The code of the resource's Lambda function is the folders `archives` and `handler`, and the wheels of models.

The size of the event that CloudFormation sends to the function is checked at synth. An update's event carries the
properties twice, new and old. CloudFormation invokes the function asynchronously. Lambda's limit for the event of an
asynchronous call is 1 MB since late 2025, and was 256 KB before (AWS Lambda quotas). CloudFormation states no limit of
its own, so the check uses the smaller limit, 256 KB. A larger event would not arrive, and the stack would hang until
its time-out.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

import cohost.archives
from cohost.archives.handlers import FOLDER, wheel_reference
from cohost.archives.request import BUNDLE
from constructs_lib.acknowledgements import acknowledge, arn_finding
from constructs_lib.functions import add_function
from constructs_lib.storage.buckets import grant_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from constructs_lib.storage.buckets import ModelBucket
    from constructs_lib.storage.weights import ModelWeights


# Only the .py files, so that compiled files never change the asset.
_ROOT: Final = Path(cohost.archives.__file__).parent.parent
_FOLDERS: Final = ("archives", "handler")
_EXCLUDES: Final = ("*", *(line for name in _FOLDERS for line in (f"!{name}", f"!{name}/*.py")))


@contextmanager
def publisher_code(wheels: Mapping[str, bytes]) -> Iterator[lambda_.Code]:
    """Yield the publishing function's code; the Lambda function must be created inside the `with` block.

    `wheels` has the contents of wheels by file name.
    """
    if not wheels:
        yield lambda_.Code.from_asset(str(_ROOT), exclude=list(_EXCLUDES), ignore_mode=cdk.IgnoreMode.GIT)
        return
    # The CDK takes one folder as code, and copies the folder when the function is created.
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), {f"{FOLDER.name}/{name}": content for name, content in wheels.items()})
        sources = (file for name in _FOLDERS for file in sorted((_ROOT / name).glob("*.py")))
        _write(Path(folder), {str(file.relative_to(_ROOT)): file.read_bytes() for file in sources})
        yield lambda_.Code.from_asset(folder)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


EVENT_LIMIT_BYTES: Final = 262_144

# The size of the rest of the event: a signed response URL, ARNs, ids, names and the bucket.
ENVELOPE_BYTES: Final = 8_192


def event_bytes(properties: Mapping[str, object]) -> int:
    """Return the largest size of an update's event in bytes: the properties twice, in ASCII, and the other fields."""
    return 2 * len(json.dumps(properties, ensure_ascii=True)) + ENVELOPE_BYTES


def event_fault(models: Mapping[str, Mapping[str, str]], requirements: Mapping[str, str]) -> str | None:
    """Return the error message for a catalog whose models do not fit into an event; None if they fit."""
    size = event_bytes({"Models": models, "Requirements": requirements})
    if size <= EVENT_LIMIT_BYTES:
        return None
    return (
        f"models: {len(models)} entries make an update event of up to {size} bytes; "
        f"allowed: {EVENT_LIMIT_BYTES} bytes, the limit of Lambda's asynchronous calls; "
        "fix: put fewer models into one catalog, or leave some out of it and add them with `cohost push`"
    )


RESOURCE_TYPE: Final = "Custom::LmiModelStore"

FUNCTION_TIMEOUT: Final = cdk.Duration.minutes(15)
# A function that dies cannot answer; without this time-out, CloudFormation would wait for an hour.
SERVICE_TIMEOUT: Final = cdk.Duration.minutes(16)


class ModelStore(Construct):
    """The archives of a catalog's models, published under a prefix of a bucket, and their common S3 address.

    A model that is added or removed leaves the address unchanged; a changed model gives a new address, and so a new
    SageMaker Model and endpoint configuration.

    Args:
        bucket: the bucket that holds the archives.
        prefix: the part of every key before the generation; ends with "/".
        models: the properties of each model's serving.properties, by model name.
        requirements: the lines of the archive's requirements.txt, by model name. A model without an entry has none.
        handlers: the handler whose code goes into the archive, as "name@version", by model name.
        wheels: the contents of the archive's wheels by file name, by model name. A model without an entry has none.
        weights: the weights in S3 that the archives refer to. None if all weights come from the Hub.
        keep_on_destroy: True leaves the published archives in the bucket when the stack is deleted, False removes them.
        keep_generations: the number of earlier generations (published sets of archives) that stay after an update
            that succeeded, for `cohost rollback`.
        bundle: True publishes all models as one archive with a folder per model, for a container that loads all models
            when it starts. With one archive, any change of the models gives a new address.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        bucket: ModelBucket,
        prefix: str,
        models: Mapping[str, Mapping[str, str]],
        requirements: Mapping[str, tuple[str, ...]],
        handlers: Mapping[str, str],
        wheels: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
        weights: ModelWeights | None = None,
        keep_on_destroy: bool,
        keep_generations: int = 0,
        bundle: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self._bucket = bucket
        self._prefix = prefix
        self._weights = weights
        required = {name: "\n".join(lines) for name, lines in requirements.items() if lines}
        if fault := event_fault(models, required):
            cdk.Annotations.of(self).add_error(fault)
        with publisher_code({name: file for files in wheels.values() for name, file in files.items()}) as code:
            function = self._function(code)
        packed = {
            name: " ".join(starmap(wheel_reference, sorted(files.items()))) for name, files in wheels.items() if files
        }
        self._resource = cdk.CustomResource(
            self,
            "Archives",
            resource_type=RESOURCE_TYPE,
            service_token=function.function_arn,
            service_timeout=SERVICE_TIMEOUT,
            properties={
                "Bucket": bucket.bucket_name,
                "Prefix": prefix,
                "Models": {name: dict(properties) for name, properties in models.items()},
                **({"Requirements": required} if required else {}),
                **({"Handlers": dict(handlers)} if handlers else {}),
                **({"Wheels": packed} if packed else {}),
                **({"Layout": BUNDLE} if bundle else {}),
                **({"KeepGenerations": str(keep_generations)} if keep_generations else {}),
                **({"PackedWeights": dict(weights.packed)} if weights and weights.packed else {}),
                **({"WeightsBucket": weights.bucket_name} if weights and weights.bucket_name else {}),
            },
        )
        if keep_on_destroy:
            self._keep_archives()

    @property
    def model_data_url(self) -> str:
        """Return the ModelDataUrl: "s3://<bucket>/<prefix><generation>/", or the URL of a bundle's archive below it."""
        return self._resource.get_att_string("ModelDataUrl")

    @property
    def generation(self) -> str:
        """Return the id of the published generation (set of archives)."""
        return self._resource.get_att_string("Generation")

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading and listing the archives below the store's prefix, and the weights that they refer to."""
        iam.Grant.add_to_principal(grantee=grantee, actions=["s3:GetObject"], resource_arns=[self._objects_arn()])
        grant_list(grantee, self._bucket.bucket_arn, self._prefix)
        if self._bucket.key is not None:
            self._bucket.key.grant_read(grantee)
        acknowledge(
            grantee,
            "AwsSolutions-IAM5",
            finding=arn_finding(self._bucket.bucket, f"{self._prefix}*"),
            reason="Archives of models to come are read too; the wildcard stays below the store's own prefix.",
        )
        if self._weights is not None:
            self._weights.grant_read(grantee)

    def _objects_arn(self) -> str:
        return f"{self._bucket.bucket_arn}/{self._prefix}*"

    def _function(self, code: lambda_.Code) -> lambda_.Function:
        """Create the Lambda function that publishes; its role may read, write and delete objects below the prefix."""
        function, role = add_function(
            self,
            description="Publishes model archives below a prefix and removes those that it published",
            code=code,
            handler="archives.index.on_event",
            timeout=FUNCTION_TIMEOUT,
            memory_size=512,
        )
        self._grant_publish(role)
        return function

    def _grant_publish(self, role: iam.Role) -> None:
        iam.Grant.add_to_principal(
            grantee=role,
            actions=["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            resource_arns=[self._objects_arn()],
        )
        grant_list(role, self._bucket.bucket_arn, self._prefix)
        if self._bucket.key is not None:
            self._bucket.key.grant_write(role)
        if self._weights is not None:
            self._weights.grant_publish(role)
            if self._weights.packed:
                # An archive with weights is uploaded in parts; parts of a failed upload must not stay and bill.
                iam.Grant.add_to_principal(
                    grantee=role, actions=["s3:AbortMultipartUpload"], resource_arns=[self._objects_arn()]
                )
        acknowledge(
            role,
            "AwsSolutions-IAM5",
            finding=arn_finding(self._bucket.bucket, f"{self._prefix}*"),
            reason="Keys carry generation and model names; the wildcard stays below the store's own prefix.",
        )

    def _keep_archives(self) -> None:
        """Keep the archives when the stack is deleted; an update still removes the generation that it replaces."""
        resource = self._resource.node.default_child
        if isinstance(resource, cdk.CfnResource):
            resource.apply_removal_policy(cdk.RemovalPolicy.RETAIN, apply_to_update_replace_policy=False)
