"""Rollback to an earlier generation (published set of archives), without the checkout that it was deployed from.

The model store is the custom resource that publishes archives. The properties that a generation was published from are
stored beside its archives. A rollback puts the stored properties into the deployed template in place of the model
store's present properties, and CloudFormation updates the stack to that template. No archive is packed again: the model
store gets the generation's id, so the result does not depend on the code of the deployed publishing function.
"""

from __future__ import annotations

import copy
import json
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.archives.handlers import handler_version
from cohost.archives.layout import Layout
from cohost.deploy.cdk import Progress
from cohost.endpoint.invocation_payloads import call_of
from cohost.endpoint.stack_outputs import KINDS_OUTPUT, WEIGHTS_OUTPUT, describe_stack, kind_of
from cohost.errors import StackError, reason_of
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO, addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

    from cohost.archives.history import Earlier
    from cohost.endpoint.stack_outputs import Deployment


BODY_BYTES: Final = 51_200
"""The largest template in bytes that CloudFormation accepts in a request; a longer one must be in S3 (user guide:
quotas)."""

_CAPABILITIES: Final = ("CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND")
_DONE: Final = "UPDATE_COMPLETE"


def update(
    cloudformation: CloudFormationClient,
    s3: S3Client,
    deployment: Deployment,
    template: Mapping[str, Any],
    *,
    show: Callable[[Progress], None],
    poll_s: float = 2.0,
) -> None:
    """Update a deployment's stack to a template, and call `show` every `poll_s` seconds until the update has ended.

    The stack's parameters, tags and service role are unchanged.

    Raises:
        StackError: CloudFormation refuses the update, or the update failed and was rolled back; the message lists each
            failed resource with its reason.
    """
    stack = deployment.stack_name
    body = json.dumps(template, separators=(",", ":"), ensure_ascii=False)
    started = datetime.now(UTC)
    try:
        with _handed_over(s3, deployment, body) as handed:
            parameters = describe_stack(cloudformation, stack).get("Parameters", [])
            cloudformation.update_stack(
                StackName=stack,
                Capabilities=[*_CAPABILITIES],
                Parameters=[{"ParameterKey": one["ParameterKey"], "UsePreviousValue": True} for one in parameters],
                **handed,
            )
    except ClientError as error:
        raise _refused(stack, error) from error
    _follow(cloudformation, stack, Progress(started=started), show, poll_s)


@contextmanager
def _handed_over(s3: S3Client, deployment: Deployment, body: str) -> Iterator[dict[str, Any]]:
    """Yield the argument of `update_stack` that passes the template.

    A template of more than BODY_BYTES is stored in the stack's own bucket, and deleted at the end of the `with` block.
    """
    if len(body.encode()) <= BODY_BYTES:
        yield {"TemplateBody": body}
        return
    layout = Layout(bucket=deployment.bucket, prefix=deployment.prefix)
    key = layout.template(f"{uuid.uuid4()}.json")
    s3.put_object(Bucket=deployment.bucket, Key=key, Body=body.encode(), ContentType="application/json")
    try:
        yield {"TemplateURL": f"{s3.meta.endpoint_url}/{deployment.bucket}/{key}"}
    finally:
        s3.delete_object(Bucket=deployment.bucket, Key=key)


def _follow(
    cloudformation: CloudFormationClient,
    stack: str,
    progress: Progress,
    show: Callable[[Progress], None],
    poll_s: float,
) -> None:
    while True:
        # Read the status before the events, so that the events up to this status are complete.
        status = describe_stack(cloudformation, stack)["StackStatus"]
        progress.take(list(reversed(cloudformation.describe_stack_events(StackName=stack)["StackEvents"])))
        show(progress)
        if not status.endswith("_IN_PROGRESS"):
            break
        time.sleep(poll_s)
    if status != _DONE:
        failures = "".join(f"\n{line}" for line in progress.failures) or " (no resource has a reason)"
        raise StackError(
            "update-failed",
            f"stack {stack}",
            f"its update ended in {status}; unless that is a ROLLBACK_FAILED, the stack is unchanged",
            fix=f"correct the faults of the resources{failures}",
        )


def _refused(stack: str, error: ClientError) -> StackError:
    return StackError(
        "update-refused",
        f"stack {stack}",
        f"{error.operation_name}: {reason_of(error)}",
        fix="wait for a running update, or check your rights",
    )


RESOURCE_TYPE: Final = "Custom::LmiModelStore"

# Properties of the model store that a rollback keeps: the location of the archives, and the publishing function.
_OF_THE_PLACE: Final = ("ServiceToken", "ServiceTimeout", "Bucket", "Prefix", "KeepGenerations", WEIGHTS_OUTPUT)
_STOCK: Final = "stock"
_S3: Final = "s3://"
_PLACEHOLDER: Final = "{"


def check_topology(deployment: Deployment) -> None:
    """Check that a deployment's topology supports rollback to an earlier generation.

    Raises:
        StackError: the topology is neither multi-model nor scale-to-zero, but that of a comparison design.
    """
    if deployment.topology not in {MULTI_MODEL, SCALE_TO_ZERO}:
        raise StackError(
            "rollback-unsupported",
            f"stack {deployment.stack_name}",
            f"has the topology {deployment.topology!r}",
            allowed=f"{MULTI_MODEL}, {SCALE_TO_ZERO}",
            fix=f"run `cdk deploy {deployment.stack_name}` from the checkout to go back to",
        )


def choose(earlier: Sequence[Earlier], wanted: str | None) -> Earlier:
    """Return the stored generation with the id `wanted`; if that is None, the one served before the present one.

    Raises:
        StackError: no earlier generation is stored, or none has the id `wanted`.
    """
    if not earlier:
        raise StackError(
            "generations-not-kept",
            "--to",
            "no earlier generation is stored",
            allowed="one that an update replaced and `storage.keep_generations` kept",
            fix="deploy the catalog as it was",
        )
    if wanted is None:
        return earlier[0]
    for one in earlier:
        if one.generation == wanted:
            return one
    known = ", ".join(one.generation for one in earlier)
    raise StackError("generation-unknown", "--to", f"{wanted!r} is not stored", allowed=known, fix="name one of these")


def present_models(template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return each model's serving properties in a template, by the model's name.

    Raises:
        StackError: the template has no model store, or several.
    """
    return dict(_store_of(template)["Properties"]["Models"])


def check_engine_version(template: Mapping[str, Any], name: str, handler: str) -> None:
    """Check that a `handler: shared` model added to a deployed stack has the handler version of the stack's models.

    An engine process runs one version of the handler's code, so a model of another version would start a second engine
    process, with a CUDA context of its own.

    Raises:
        StackError: the versions differ, or the template has no model store, or several.
    """
    own = handler_version(handler)
    running = {text.partition("@")[2] for text in _store_of(template)["Properties"].get("Handlers", {}).values()}
    if running - {own}:
        raise StackError(
            "handler-version-differs",
            f"models.{name}.handler",
            f"is shared in version {own}, and the deployed models have version {', '.join(sorted(running - {own}))}, "
            "so the model would need a second engine process on each device",
            allowed="the version of the deployed models",
            fix="run `cdk deploy`, which publishes all models in one version, or push from the checkout that deployed "
            "the stack",
        )


def differences(now: Mapping[str, Mapping[str, str]], then: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the changes of a rollback, one line per model that is added or removed, or whose properties change."""
    lines = [f"{name}: comes back" for name in then if name not in now]
    lines += [f"{name}: goes" for name in now if name not in then]
    for name in then:
        old, new = now.get(name, then[name]), then[name]
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if changed:
            lines.append(f"{name}: " + ", ".join(f"{key} {_shown(old, key)} → {_shown(new, key)}" for key in changed))
    return lines


def template_of(template: Mapping[str, Any], deployment: Deployment, target: Earlier) -> dict[str, Any]:
    """Return the deployed template with an earlier generation in place of the present one.

    Raises:
        StackError: the stack cannot serve that generation, because the generation is another topology's or has weights
            that the containers' role may not read.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(template))
    store = _store_of(changed)
    present = store["Properties"]
    _check(present, target, deployment)
    store["Properties"] = {
        **{name: present[name] for name in _OF_THE_PLACE if name in present},
        **{name: value for name, value in target.properties.items() if name not in _OF_THE_PLACE},
        "Generation": target.generation,
    }
    _update_outputs(changed["Outputs"], deployment, target.properties, present["Models"])
    return changed


def _store_of(template: Mapping[str, Any]) -> dict[str, Any]:
    found = [one for one in template.get("Resources", {}).values() if one.get("Type") == RESOURCE_TYPE]
    if len(found) != 1:
        raise StackError(
            "store-ambiguous",
            "template",
            f"has {len(found)} resources of type {RESOURCE_TYPE}",
            allowed="one",
            fix="name the right stack with --stack",
        )
    store: dict[str, Any] = found[0]
    return store


def _check(present: Mapping[str, Any], target: Earlier, deployment: Deployment) -> None:
    """Check that the present stack has the generation's topology, and may read the generation's weights."""
    then = target.properties
    if present.get("Layout") != then.get("Layout"):
        raise _missing(target, deployment, "another topology's archives")
    if WEIGHTS_OUTPUT in then and WEIGHTS_OUTPUT not in present:
        raise _missing(target, deployment, "weights in S3, which the containers' role may not read now")
    if unread := sorted(set(_places(then["Models"])) - set(_places(present["Models"]))):
        raise _missing(target, deployment, f"weights of {', '.join(unread)}, which the role may not read now")


def _missing(target: Earlier, deployment: Deployment, what: str) -> StackError:
    return StackError(
        "generation-unservable",
        f"generation {target.generation}",
        f"has {what}",
        allowed="one that the present stack can serve",
        fix=f"check out what it was deployed from and run `cdk deploy {deployment.stack_name}`",
    )


def _places(models: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    """Yield the S3 URIs in `option.model_id` that the user wrote; URIs of the project's weights bucket are left out.

    The containers' role may read only the S3 prefixes that were deployed.
    """
    for properties in models.values():
        address = properties.get("option.model_id", "")
        if address.startswith(_S3) and not address.startswith(_S3 + _PLACEHOLDER):
            yield address


def _update_outputs(
    outputs: dict[str, Any],
    deployment: Deployment,
    then: Mapping[str, Any],
    before: Mapping[str, Mapping[str, str]],
) -> None:
    """Set the stack outputs that name models (Models, Kinds, ExampleCall) to the models of the earlier generation."""
    models: Mapping[str, Mapping[str, str]] = then["Models"]
    outputs["Models"]["Value"] = json.dumps(addresses(deployment.topology, models))
    if KINDS_OUTPUT in outputs:
        named = {name: text.partition("@")[0] for name, text in then.get("Handlers", {}).items()}
        handlers = dict.fromkeys(models, _STOCK) | named
        kinds = {name: kind_of(handlers[name], one.get("option.task", "")) for name, one in models.items()}
        outputs[KINDS_OUTPUT]["Value"] = json.dumps(kinds)
    first = next(iter(models))
    if "ExampleCall" not in outputs or next(iter(before)) in models:
        return
    route = deployment.route_to(first, addresses(deployment.topology, models))
    outputs["ExampleCall"]["Value"] = call_of(route, models[first].get("option.task", ""), deployment.region)


def _shown(properties: Mapping[str, str], key: str) -> str:
    return properties.get(key, "unset")
