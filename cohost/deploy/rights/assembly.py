"""The stacks of a catalog as `cdk synth` writes them, and the names in them that a caller's IAM policy mentions."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

from cohost.catalog.serving import image_of
from cohost.deploy.cdk import cdk_command
from cohost.deploy.preflight import own_buckets
from cohost.deploy.rights.policies import Caller, Place, StackRights, Values, qualifier_of
from cohost.errors import StackError
from cohost.weights.store import bucket_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog

_STACK: Final = "aws:cloudformation:stack"
_MANIFEST: Final = "manifest.json"
_ENDPOINT: Final = "AWS::SageMaker::Endpoint"
_CONFIG: Final = "AWS::SageMaker::EndpointConfig"
_MODEL: Final = "AWS::SageMaker::Model"
_COMPONENT: Final = "AWS::SageMaker::InferenceComponent"
_BUCKET: Final = "AWS::S3::Bucket"
_GROUP: Final = "AWS::Scheduler::ScheduleGroup"
_SCHEDULE: Final = "AWS::Scheduler::Schedule"


def synthesise(stack: str, catalog: Path, folder: Path) -> None:
    """Run `cdk synth` for a stack of a catalog; write the assembly to `folder`, and cdk's own messages to stderr.

    Raises:
        LocalError: the program `cdk` or `node` is missing.
        StackError: `cdk synth` failed.
    """
    command = cdk_command("synth", stack, "--quiet", "--output", str(folder), catalog=catalog)
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)  # noqa: S603 - the cdk command of this project
    if ended.returncode:
        raise StackError(
            "cdk-failed",
            f"stack {stack}",
            f"cdk synth ended with exit code {ended.returncode}",
            fix="correct the fault that it printed",
        )


def read_stacks(folder: Path, stack: str, *, partition: str, region: str, account: str) -> list[StackRights]:
    """Return a stack of an assembly, then the stacks that it depends on.

    Raises:
        StackError: the assembly has no stack of this name.
    """
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    artifacts: dict[str, Any] = {k: v for k, v in manifest["artifacts"].items() if v["type"] == _STACK}
    if stack not in artifacts:
        raise StackError(
            "stack-not-in-catalog",
            "--stack",
            f"the catalog has no stack {stack!r}",
            allowed=", ".join(artifacts),
            fix="name one of these",
        )
    names = [stack, *(one for one in artifacts[stack].get("dependencies", []) if one in artifacts)]
    found = []
    for name in names:
        file = folder / artifacts[name]["properties"]["templateFile"]
        template = json.loads(file.read_text(encoding="utf-8"))
        place = Place(partition=partition, region=region, account=account, qualifier=qualifier_of(template))
        found.append(StackRights(artifacts[name]["properties"].get("stackName", name), template, place))
    return found


def caller_of(catalog: Catalog, stacks: Sequence[StackRights]) -> Caller:
    """Return the `Caller` for a catalog's stacks; the first of the stacks must be the endpoint's.

    Raises:
        ImageError: the catalog's image cannot be read, or the region has no known registry for it.
    """
    main, place = stacks[0], stacks[0].place
    endpoints, components = main.names_of_type(_ENDPOINT), main.names_of_type(_COMPONENT)
    image = image_of(catalog.endpoint, place.region)
    pushed = any(entry.pushed for entry in catalog.models.values())
    weights = catalog.storage.weights_bucket or bucket_name(place.account, place.region)
    own = own_buckets(catalog)
    keys = {catalog.storage.kms_key, catalog.storage.weights_kms_key} - {None}
    values: Values = {
        "stack": tuple(one.name for one in stacks),
        "endpoint": endpoints,
        "config": main.names_of_type(_CONFIG),
        "model": main.names_of_type(_MODEL),
        "component": components,
        "with_component": ("",) if components else (),
        "without_component": () if components else ("",),
        "bucket": main.names_of_type(_BUCKET),
        "prefix": (catalog.storage.prefix,),
        "weights_bucket": (weights,) if pushed else (),
        "own_bucket": tuple(own),
        "any_key_of_own_bucket": (f"arn:{place.partition}:kms:{place.region}:{place.account}:key/*",) if own else (),
        "image": (f"arn:{place.partition}:ecr:{image.region}:{image.account}:repository/{image.repository}",),
        "key": tuple(sorted(str(one) for one in keys)),
        "volume_key": tuple(main.text(one["KmsKeyId"]) for one in main.of_type(_CONFIG).values() if "KmsKeyId" in one),
        "container_logs": (
            *(f"/aws/sagemaker/Endpoints/{name}" for name in endpoints),
            *(f"/aws/sagemaker/InferenceComponents/{name}" for name in components),
        ),
        "schedule_group": main.names_of_type(_GROUP),
        "schedule_role": tuple(
            dict.fromkeys(
                name for one in main.of_type(_SCHEDULE).values() for name in main.named_by(one["Target"]["RoleArn"])
            )
        ),
        **_token(catalog, place),
    }
    return Caller(stacks=stacks, values=values)


def _token(catalog: Catalog, place: Place) -> Values:
    service, _, name = (catalog.hub_token or "").partition(":")
    start = f"arn:{place.partition}:{service}:{place.region}:{place.account}:"
    # Secrets Manager adds six random characters to the name in the ARN of a secret.
    secret = f"{start}secret:{name}-??????"
    return {
        "secret": (secret,) if service == "secretsmanager" else (),
        "parameter": (f"{start}parameter/{name.lstrip('/')}",) if service == "ssm" else (),
    }
