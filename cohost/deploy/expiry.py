"""The expiry of a deployed endpoint: reading it, moving it, and restoring an endpoint that has expired.

The stack's schedules are changed in place, without CloudFormation, which updates them only when their properties change
in the template. A deleted endpoint is created again under the same name with the configuration that the stack still
has. CloudFormation identifies it by its ARN, which is the same, so the next deploy finds it unchanged.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.catalog.sections.lifecycle import ALLOWED_EXPIRES, LONGEST, SHORTEST, read_expiry
from cohost.endpoint.copies import Bounds, Component
from cohost.endpoint.stack_outputs import STACK_TAG, Deployment, describe_stack, read_outputs
from cohost.errors import StackError, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import boto3


OUTPUT: Final = "EndOfLife"
DELETE_ENDPOINT: Final = "delete-endpoint"
COPIES_TO_ZERO: Final = "copies-to-zero"
NEVER: Final = "never"
POLL_SECONDS: Final = 10.0
GONE: Final = "Gone"
AT_ZERO: Final = "AtZero"

_AT: Final = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
# Of a schedule that is switched off: whether Scheduler takes a moment that is past is not documented.
_FAR: Final = dt.datetime(2099, 12, 31, tzinfo=dt.UTC)
_KEPT: Final = ("Description", "FlexibleTimeWindow", "Target", "ActionAfterCompletion")


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """The expiry of a deployed endpoint.

    `action` is DELETE_ENDPOINT or COPIES_TO_ZERO. `at` is the end in UTC, also after it has passed; None means never.
    `schedules` has the name of each schedule and the seconds by which it comes after the end. `state` is SageMaker's
    status of the endpoint, "Gone" if it was deleted, "AtZero" if its copies were removed and scaling is suspended.
    """

    deployment: Deployment
    action: str
    group: str
    schedules: Sequence[tuple[str, int]]
    config: str
    bounds: Bounds | None
    at: dt.datetime | None
    state: str

    @property
    def has_ended(self) -> bool:
        """Return True if the endpoint has expired, so that moving the expiry restores it."""
        return self.state in {GONE, AT_ZERO}

    @property
    def lost_scaling(self) -> bool:
        """Return True if the expiry removed the scaling too: deleting an endpoint deregisters its scalable target."""
        return self.state == GONE and self.bounds is not None


def read_when(text: str, *, now: dt.datetime, current: dt.datetime | None) -> dt.datetime | None:
    """Parse the expiry that a user requests; None is never.

    Args:
        text: `never`, `+4h` (after the present end, or from now if that is past), or what `expires` of a catalog takes.
        now: the present moment.
        current: the present end.

    Raises:
        StackError: it cannot be read, or is past.
    """
    if text == NEVER:
        return None
    later = text.startswith("+")
    try:
        expiry = read_expiry(text.removeprefix("+"))
    except ValueError as error:
        raise _unreadable(text) from error
    if later and expiry.after is None:
        raise _unreadable(text)
    moment = expiry.moment(max(now, current or now) if later else now)
    if moment <= now:
        raise StackError(
            "expiry-past", "WHEN", f"{text!r} is past", allowed="a moment to come", fix="write a later one"
        )
    return moment.replace(microsecond=0)


def _unreadable(text: str) -> StackError:
    return StackError(
        "expiry-unreadable",
        "WHEN",
        f"got {text!r}",
        allowed=f"show, never, +4h, {ALLOWED_EXPIRES}; {SHORTEST.seconds // 60}m to {LONGEST.days}d ahead",
        fix="write it as one of these",
    )


def read_lifetime(session: boto3.Session, stack_name: str) -> Lifetime:
    """Read the expiry of a stack's endpoint from CloudFormation, EventBridge Scheduler and SageMaker.

    Raises:
        StackError: the stack does not exist, or its endpoint does not expire.
    """
    outputs = read_outputs(session.client("cloudformation"), stack_name)
    deployment = Deployment.from_outputs(stack_name, outputs)
    if OUTPUT not in outputs:
        raise StackError(
            "expiry-missing",
            f"stack {stack_name}",
            "has no end that could be moved",
            allowed="a catalog with `expires`",
            fix=f"write e.g. `expires: 8h` into the catalog and run `cdk deploy {stack_name}`",
        )
    facts = json.loads(outputs[OUTPUT])
    bounds = facts.get("bounds")
    return Lifetime(
        deployment=deployment,
        action=facts["action"],
        group=facts["group"],
        schedules=tuple((name, seconds) for name, seconds in facts["schedules"]),
        config=facts["config"],
        bounds=None if bounds is None else Bounds(minimum=bounds[0], maximum=bounds[1]),
        at=_end(session, deployment, facts),
        state=_state(session, deployment),
    )


def move(session: boto3.Session, lifetime: Lifetime, at: dt.datetime | None) -> None:
    """Move the endpoint's expiry; None disables the schedules and leaves them in the stack, far ahead.

    Raises:
        StackError: Scheduler refuses.
    """
    client: Any = session.client("scheduler", region_name=lifetime.deployment.region)
    state = "DISABLED" if at is None else "ENABLED"
    for name, seconds in lifetime.schedules:
        moment = (at or _FAR) + dt.timedelta(seconds=seconds)
        try:
            found = client.get_schedule(GroupName=lifetime.group, Name=name)
            client.update_schedule(
                GroupName=lifetime.group,
                Name=name,
                State=state,
                ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                **{key: found[key] for key in _KEPT if found.get(key) is not None},
            )
        except ClientError as error:
            raise StackError(
                "schedule-refused",
                f"schedule {name}",
                f"cannot be moved ({reason_of(error)})",
                fix=f"check your rights, and what changed in stack {lifetime.deployment.stack_name!r} outside of it",
            ) from error


def restore(session: boto3.Session, lifetime: Lifetime, on_status: Callable[[str], None]) -> None:
    """Restore an endpoint that has expired; one that exists is left unchanged.

    A multi-model endpoint is created again, which takes as long as its first deploy. A scale-to-zero endpoint gets its
    scaling bounds back, and its next call starts a copy.

    Args:
        session: of the account.
        lifetime: the present expiry.
        on_status: called with each change of the endpoint's status.

    Raises:
        StackError: SageMaker refuses, or the endpoint does not come up.
    """
    if not lifetime.has_ended:
        return
    deployment = lifetime.deployment
    if deployment.inference_component_name is not None:
        bounds = lifetime.bounds or Bounds(minimum=0, maximum=1)
        Component(deployment, deployment.inference_component_name, session).set_bounds(bounds)
        return
    stack = describe_stack(session.client("cloudformation"), deployment.stack_name)
    client = session.client("sagemaker", region_name=deployment.region)
    try:
        client.create_endpoint(
            EndpointName=deployment.endpoint_name,
            EndpointConfigName=lifetime.config,
            Tags=[*stack.get("Tags", []), {"Key": STACK_TAG, "Value": deployment.stack_name}],
        )
    except ClientError as error:
        raise StackError(
            "endpoint-refused",
            f"endpoint {deployment.endpoint_name}",
            f"cannot be created again ({reason_of(error)})",
            fix=f"check your rights, and what changed in stack {deployment.stack_name!r} outside of it",
        ) from error
    _wait_in_service(session, deployment, on_status)


def _wait_in_service(session: boto3.Session, deployment: Deployment, on_status: Callable[[str], None]) -> None:
    while (state := _state(session, deployment)) not in {"InService", "Failed", GONE}:
        on_status(state)
        time.sleep(POLL_SECONDS)
    if state == "InService":
        return
    name, why = deployment.endpoint_name, "it was deleted meanwhile"
    if state == "Failed":
        client = session.client("sagemaker", region_name=deployment.region)
        why = client.describe_endpoint(EndpointName=name).get("FailureReason", "no reason given")
    raise StackError(
        "endpoint-failed",
        f"endpoint {name}",
        f"did not come up ({why})",
        fix=f"correct that fault, run `aws sagemaker delete-endpoint --endpoint-name {name}`, then this again",
    )


def _end(session: boto3.Session, deployment: Deployment, facts: dict[str, Any]) -> dt.datetime | None:
    """Return the expiry by the first schedule; None if that is disabled."""
    client: Any = session.client("scheduler", region_name=deployment.region)
    name, seconds = min(facts["schedules"], key=lambda one: one[1])
    try:
        found = client.get_schedule(GroupName=facts["group"], Name=name)
    except ClientError as error:
        raise StackError(
            "schedule-unreadable",
            f"schedule {name}",
            f"cannot be looked up ({reason_of(error)})",
            fix="check your rights; if it was deleted by hand, remove `expires` from the catalog, deploy, add it and "
            "deploy again",
        ) from error
    moment = _AT.fullmatch(found["ScheduleExpression"])
    if found.get("State") == "DISABLED" or moment is None:
        return None
    return dt.datetime.fromisoformat(moment[1]).replace(tzinfo=dt.UTC) - dt.timedelta(seconds=seconds)


def _state(session: boto3.Session, deployment: Deployment) -> str:
    client = session.client("sagemaker", region_name=deployment.region)
    try:
        state: str = client.describe_endpoint(EndpointName=deployment.endpoint_name)["EndpointStatus"]
    except ClientError as error:
        if "could not find" in error.response["Error"].get("Message", "").lower():
            return GONE
        raise
    if (name := deployment.inference_component_name) is not None:
        bounds = Component(deployment, name, session).bounds()
        if bounds is not None and bounds.suspended and bounds.maximum == 0:
            return AT_ZERO
    return state
