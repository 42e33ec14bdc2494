"""Wake a scale-to-zero endpoint or put it to sleep by a command, for example at the start and end of a working day.

Both commands change auto scaling's bounds (minimum and maximum) together with the number of copies, because auto
scaling would at once undo a number outside its bounds. If the bounds were changed by hand, waking restores the bounds
of the last deploy, which are in the stack's template.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cohost.endpoint.copies import DIMENSION, PAUSES, Bounds, Component, need_component
from cohost.endpoint.stack_outputs import describe_endpoint, read_template
from cohost.errors import InvocationError, NoCapacityError, StackError, UnderWayError, WorkerStoppedError
from cohost.waiting import Clock, Gate, LimitPassedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import boto3

    from cohost.endpoint.client import CohostClient
    from cohost.endpoint.copies import Copies
    from cohost.endpoint.stack_outputs import Deployment
    from cohost.waiting import Waiting


_ANYTHING = "A short text."


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of an inference component: its desired copies and auto scaling's bounds, before and after the change.

    Both bounds are None if the component has no scalable target. `instances_that_stay` is the number of instances that
    the endpoint keeps even when no copy runs.
    """

    inference_component_name: str
    copies_before: int
    copies: int
    bounds_before: Bounds | None
    bounds: Bounds | None
    instances_that_stay: int
    instance_type: str | None


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The settings of a command's wait: its limit in seconds, the callback for its progress, and its clock."""

    limit_s: float
    notice: Callable[[Waiting], None]
    clock: Clock = field(default_factory=Clock)

    def left(self, started: float) -> Patience:
        """Return a Patience whose limit is the time that is left of a wait that began at `started`."""
        return replace(self, limit_s=max(0.0, self.limit_s - (self.clock.now() - started)))

    def wait(self, refusal: type[Exception], attempt: Callable[[], None]) -> None:
        """Repeat an attempt while it raises a `refusal`; raise the last refusal after the time limit."""
        try:
            Gate(refusal, backoff=PAUSES, clock=self.clock).run(attempt, limit_s=self.limit_s, notice=self.notice)
        except LimitPassedError as passed:
            raise passed.last from None


def put_to_sleep(deployment: Deployment, session: boto3.Session, patience: Patience, *, until_wake: bool) -> Change:
    """Request zero copies, and lower auto scaling's minimum to zero.

    Args:
        deployment: the deployment with the endpoint.
        session: the session with the account's credentials.
        patience: the longest wait for an earlier change of the component, which must end first.
        until_wake: True suspends scaling, so that only `wake_up` starts a copy; with False, a call or the schedule does
            too.

    Raises:
        RoutingError: the endpoint is not a scale-to-zero endpoint.
        StackError: the AWS service refuses; then nothing has changed.
    """
    component = Component(deployment, need_component(deployment, "sleep"), session)
    before = component.bounds()
    after = None if before is None else Bounds(minimum=0, maximum=before.maximum, suspended=until_wake)
    return _change(deployment, session, patience, component, (before, after), lambda _: 0)


def wake_up(deployment: Deployment, session: boto3.Session, patience: Patience, *, copies: int | None) -> Change:
    """Request at least one copy, and restore auto scaling's minimum and maximum of the last deploy.

    Args:
        deployment: the deployment with the endpoint.
        session: the session with the account's credentials.
        patience: the longest wait for an earlier change of the component, which must end first.
        copies: auto scaling's minimum until `put_to_sleep`. None requests one copy now, which auto scaling may remove
            when no calls arrive.

    Raises:
        RoutingError: the endpoint is not a scale-to-zero endpoint.
        StackError: `copies` exceeds auto scaling's maximum, or the AWS service refuses; then nothing has changed.
    """
    component = Component(deployment, need_component(deployment, "wake"), session)
    before = component.bounds()
    after = before
    if before is not None:
        after = _awake_bounds(before, _deployed_bounds(deployment, session) or before, copies)
    least = max(copies or 1, after.minimum if after else 0)
    return _change(deployment, session, patience, component, (before, after), lambda desired: max(desired, least))


def wait_until_awake(
    deployment: Deployment, session: boto3.Session, patience: Patience, client: CohostClient
) -> Copies:
    """Wait until a copy runs and the first model of the catalog answers; return the component's copies.

    The model is called only after a copy runs, because a refused call would request a further copy.

    Raises:
        StackError: the inference component is in status Failed.
        NoCapacityError: no copy runs when the limit has passed.
        InvocationError: the call fails for another reason than that the model rejects a single text.
    """
    component = Component(deployment, need_component(deployment, "wake"), session)
    started = patience.clock.now()
    patience.wait(NoCapacityError, lambda: _running(component))
    left_s = patience.left(started).limit_s
    model = next(iter(deployment.models))
    try:
        client.invoke(model, _ANYTHING, wake=True, wake_timeout_s=left_s, notice=patience.notice)
    except InvocationError as error:
        if not _from_a_model(error):
            raise
    return component.copies()


def _from_a_model(error: InvocationError) -> bool:
    """Return True if the error shows that the model is loaded but rejects the text, for lack of parameters."""
    if error.status is None or isinstance(error, WorkerStoppedError):
        return False
    return error.status == HTTPStatus.OK or (
        error.aws_code == "ModelError" and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _running(component: Component) -> None:
    copies = component.copies()
    if copies.current:
        return
    if copies.status == "Failed":
        raise StackError(
            "component-failed",
            f"inference component {component.name}",
            f"has failed ({copies.failure_reason or 'no reason is given'})",
            fix="see its log group, and deploy a correction",
        )
    reason = f" ({copies.failure_reason})" if copies.failure_reason else ""
    raise NoCapacityError(
        "no-capacity",
        f"inference component {component.name}",
        f"none of {copies.desired} copies runs{reason}",
        fix="run `cohost wake` to continue waiting, or `cohost sleep` to give up",
    )


def _change(
    deployment: Deployment,
    session: boto3.Session,
    patience: Patience,
    component: Component,
    bounds: tuple[Bounds | None, Bounds | None],
    wanted: Callable[[int], int],
) -> Change:
    """Set the component's bounds and copies; restore the bounds if the copies are refused, or on Ctrl-C.

    `bounds` are auto scaling's bounds before and after the change; `wanted` takes the present number of copies and
    returns the new one.
    """
    before, after = bounds
    desired = component.copies().desired
    copies = wanted(desired)
    stay, instance_type = _least_instances(deployment, session)
    if after is not None and after != before:
        component.set_bounds(after)
    if copies != desired:
        try:
            patience.wait(UnderWayError, lambda: component.set_copies(copies))
        except BaseException:
            if before is not None and after != before:
                component.set_bounds(before)
            raise
    return Change(
        inference_component_name=component.name,
        copies_before=desired,
        copies=copies,
        bounds_before=before,
        bounds=after,
        instances_that_stay=stay,
        instance_type=instance_type,
    )


def _awake_bounds(now: Bounds, deployed: Bounds, copies: int | None) -> Bounds:
    most = max(now.maximum, deployed.maximum)
    if copies is not None and copies > most:
        raise StackError(
            "copies-beyond-maximum",
            "--copies",
            f"got {copies}, but auto scaling goes up to {most}",
            allowed=f"1 to {most}",
            fix="raise scaling.max in the catalog and deploy",
        )
    # The catalog's scaling schedule may have raised the minimum for the present hours; that minimum stays.
    minimum = max(now.minimum, deployed.minimum) if copies is None else max(copies, deployed.minimum)
    # A maximum that the schedule lowered stays. The expiry sets a maximum of 0, for which the deployed one is restored.
    return Bounds(minimum=minimum, maximum=max(now.maximum or deployed.maximum, minimum))


def _deployed_bounds(deployment: Deployment, session: boto3.Session) -> Bounds | None:
    """Return auto scaling's minimum and maximum from the stack's template; None if it has no scalable target."""
    cloudformation = session.client("cloudformation", region_name=deployment.region)
    template = read_template(cloudformation, deployment.stack_name)
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if properties.get("ScalableDimension") == DIMENSION and "MinCapacity" in properties:
            return Bounds(minimum=int(properties["MinCapacity"]), maximum=int(properties["MaxCapacity"]))
    return None


def _least_instances(deployment: Deployment, session: boto3.Session) -> tuple[int, str | None]:
    """Return the endpoint's least number of instances and their type, from the endpoint's configuration."""
    _, config = describe_endpoint(session.client("sagemaker", region_name=deployment.region), deployment)
    variant = config["ProductionVariants"][0]
    managed: Any = variant.get("ManagedInstanceScaling") or {}
    if managed.get("Status") != "ENABLED":
        return variant.get("InitialInstanceCount", 1), variant.get("InstanceType")
    return managed.get("MinInstanceCount", 1), variant.get("InstanceType")
