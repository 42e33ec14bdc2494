"""The expiry of a deployed endpoint: reading it, moving it, and restoring an endpoint that has expired.

The stack's EventBridge schedules are changed in place, without CloudFormation. CloudFormation overwrites a moved expiry
only when the schedules' properties change in the template. An endpoint that the expiry deleted is created again under
the same name, with the endpoint configuration that the stack still has. CloudFormation identifies an endpoint by its
ARN, which is the same again, so the next deploy finds the endpoint unchanged.
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
# The date of a disabled schedule. It lies ahead, since no document states that Scheduler accepts a past date.
_FAR: Final = dt.datetime(2099, 12, 31, tzinfo=dt.UTC)
_KEPT: Final = ("Description", "FlexibleTimeWindow", "Target", "ActionAfterCompletion")


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """The expiry of a deployed endpoint.

    `action` is DELETE_ENDPOINT or COPIES_TO_ZERO. `at` is the time of the expiry in UTC, in the past once the endpoint
    has expired; None means never. `group` is the group of the schedules; `schedules` has each schedule's name and its
    delay after `at` in seconds. `config` is the endpoint configuration, and `bounds` are the deployed bounds of auto
    scaling. `state` is SageMaker's status of the endpoint, "Gone" if the endpoint was deleted, or "AtZero" if its
    copies were removed and scaling is suspended.
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
        """Return True if the endpoint has expired; moving its expiry then restores the endpoint."""
        return self.state in {GONE, AT_ZERO}

    @property
    def lost_scaling(self) -> bool:
        """Return True if the endpoint lost its scaling, because the deletion of an endpoint deregisters its target."""
        return self.state == GONE and self.bounds is not None


def read_when(text: str, *, now: dt.datetime, current: dt.datetime | None) -> dt.datetime | None:
    """Return the time of the expiry that a user requests; None means never.

    Args:
        text: `never`, `+4h` (4 hours after `current`, or from now if `current` is past), or a value of the catalog's
            key `expires`.
        now: the present time.
        current: the endpoint's present expiry.

    Raises:
        StackError: the text cannot be parsed, or its time is past.
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
        StackError: the stack does not exist or has no expiry, or EventBridge Scheduler refuses to show a schedule.
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
    """Move the endpoint's expiry; for None, disable its schedules and date them 2099-12-31, without deleting them.

    Raises:
        StackError: EventBridge Scheduler refuses to read or update a schedule.
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
    """Restore an endpoint that has expired; an endpoint that has not expired is left unchanged.

    A multi-model endpoint is created again, which takes as long as its first deploy. A scale-to-zero endpoint gets its
    scaling bounds back, and its next call starts a copy.

    Args:
        session: the session with the account's credentials.
        lifetime: the endpoint's expiry as `read_lifetime` returned it.
        on_status: the function that is called with the endpoint's status at each poll.

    Raises:
        StackError: SageMaker or Application Auto Scaling refuses, or the endpoint does not reach InService.
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
    """Return the time of the expiry in UTC, computed from the earliest schedule; None if that schedule is disabled."""
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
