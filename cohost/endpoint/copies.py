"""Read and set the copies of a scale-to-zero endpoint's inference component, and auto scaling's minimum and maximum.

Source: AWS API reference, DescribeInferenceComponent, UpdateInferenceComponentRuntimeConfig and RegisterScalableTarget.

The class `Waker` waits for a scale-to-zero endpoint to wake up, without requesting more than one copy. At zero copies,
SageMaker refuses a call and counts it in a metric. The metric of refused calls raises an alarm, which requests one more
copy per minute until the alarm ends (AWS guide: CloudWatch alarm actions). So after the first refused call, `Waker`
sends no further call while a copy is starting, but polls SageMaker for the number of running copies.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from botocore.exceptions import ClientError

from cohost.errors import NoCapacityError, RoutingError, StackError, UnderWayError, reason_of
from cohost.routing import SCALE_TO_ZERO
from cohost.waiting import Backoff, Clock, Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    import boto3
    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.endpoint.stack_outputs import Deployment
    from cohost.waiting import Waiting


_UNDER_WAY = frozenset({"Creating", "Updating"})
NAMESPACE: Literal["sagemaker"] = "sagemaker"
DIMENSION: Literal["sagemaker:inference-component:DesiredCopyCount"] = "sagemaker:inference-component:DesiredCopyCount"


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The copies of an inference component: the numbers desired and running, the component's status and failure."""

    status: str
    desired: int
    current: int
    failure_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Auto scaling's minimum and maximum of copies. If `suspended`, neither a call nor the schedule adds copies."""

    minimum: int
    maximum: int
    suspended: bool = False


def read_copies(sagemaker: SageMakerClient, component_name: str) -> Copies:
    """Return an inference component's copies from SageMaker; raises botocore's ClientError if SageMaker refuses."""
    found = sagemaker.describe_inference_component(InferenceComponentName=component_name)
    runtime = found.get("RuntimeConfig", {})
    return Copies(
        status=found["InferenceComponentStatus"],
        desired=runtime.get("DesiredCopyCount", 0),
        current=runtime.get("CurrentCopyCount", 0),
        failure_reason=found.get("FailureReason") or None,
    )


def need_component(deployment: Deployment, command: str) -> str:
    """Return the name of the deployment's inference component; an error names `command`, the caller's command.

    Raises:
        RoutingError: the endpoint is not a scale-to-zero endpoint, so it has no copies to set.
    """
    if deployment.inference_component_name is None:
        raise RoutingError(
            "topology-unfit",
            f"cohost {command}",
            f"endpoint {deployment.endpoint_name!r} has the topology {deployment.topology!r}, which cannot go to zero",
            allowed=SCALE_TO_ZERO,
            fix=f"set `topology: {SCALE_TO_ZERO}` in the catalog and deploy, or run `cdk destroy "
            f"{deployment.stack_name}` for hours without calls",
        )
    return deployment.inference_component_name


class Component:
    """One deployed inference component. All methods raise StackError if the AWS service refuses."""

    def __init__(self, deployment: Deployment, name: str, session: boto3.Session) -> None:
        self.name = name
        self._field = f"inference component {name}"
        self._stack = deployment.stack_name
        self._sagemaker = session.client("sagemaker", region_name=deployment.region)
        self._scaling = session.client("application-autoscaling", region_name=deployment.region)

    def copies(self) -> Copies:
        """Return the present numbers of copies and the component's status."""
        try:
            return read_copies(self._sagemaker, self.name)
        except ClientError as error:
            raise self._fault("cannot be looked up", error) from error

    def set_copies(self, count: int) -> None:
        """Request this number of copies; raises UnderWayError while an earlier change of the component is under way."""
        try:
            self._sagemaker.update_inference_component_runtime_config(
                InferenceComponentName=self.name, DesiredRuntimeConfig={"CopyCount": count}
            )
        except ClientError as error:
            what = f"cannot be set to {count} copies"
            if self.copies().status not in _UNDER_WAY:
                raise self._fault(what, error) from error
            raise UnderWayError(
                "component-under-way",
                self._field,
                f"{what} ({reason_of(error)})",
                fix="wait until the change under way has ended (`cohost status`)",
            ) from error

    def bounds(self) -> Bounds | None:
        """Return the minimum and maximum of the component's scalable target; None if it has no scalable target."""
        try:
            answer = self._scaling.describe_scalable_targets(
                ServiceNamespace=NAMESPACE, ResourceIds=[self._resource()], ScalableDimension=DIMENSION
            )
        except ClientError as error:
            raise self._fault("cannot be looked up in Application Auto Scaling", error) from error
        for target in answer["ScalableTargets"]:
            state: Any = target.get("SuspendedState") or {}
            return Bounds(
                minimum=target["MinCapacity"],
                maximum=target["MaxCapacity"],
                suspended=bool(state.get("DynamicScalingOutSuspended")),
            )
        return None

    def set_bounds(self, bounds: Bounds) -> None:
        """Set the minimum and maximum of the component's scalable target, which must exist."""
        try:
            self._scaling.register_scalable_target(
                ServiceNamespace=NAMESPACE,
                ResourceId=self._resource(),
                ScalableDimension=DIMENSION,
                MinCapacity=bounds.minimum,
                MaxCapacity=bounds.maximum,
                SuspendedState={
                    "DynamicScalingInSuspended": False,
                    "DynamicScalingOutSuspended": bounds.suspended,
                    "ScheduledScalingSuspended": bounds.suspended,
                },
            )
        except ClientError as error:
            what = f"cannot be scaled between {bounds.minimum} and {bounds.maximum} copies"
            raise self._fault(what, error) from error

    def _resource(self) -> str:
        return f"inference-component/{self.name}"

    def _fault(self, what: str, error: ClientError) -> StackError:
        return StackError(
            "component-refused",
            self._field,
            f"{what} ({reason_of(error)})",
            fix=f"check your rights, or run `cdk deploy {self._stack}` if it was deleted",
        )


Answer = TypeVar("Answer")

WAKE_TIMEOUT_S = 900.0
"""The longest wait for a copy in seconds. Others measured 9 min 24 s from the first refused call to the first answer on
ml.g5.xlarge."""

PAUSES = Backoff(first_s=2.0, longest_s=10.0)

CALL_AGAIN_S = 180.0
"""Seconds after a refused call at which the call is repeated if no copy is desired: the alarm has missed the call."""

BLIND_CALL_AGAIN_S = 60.0
"""Seconds after a refused call at which the call is repeated if the caller may not describe the component."""

_NO_CAPACITY = re.compile(r"\bno capacity to process this request\b", re.IGNORECASE)


def is_no_capacity(error_type: str, message: str) -> bool:
    """Return True if an error of InvokeEndpoint means that the inference component has no running copy.

    The error is a ValidationError with status 400, as many other errors are; only its text distinguishes it (AWS guide:
    scale an endpoint to zero instances).
    """
    return error_type in {"ValidationError", "ValidationException"} and bool(_NO_CAPACITY.search(message))


class Waker:
    """The wait of all calls of one inference component until a copy runs.

    The class is thread-safe: one thread polls for all waiting calls.

    If `sagemaker` is None or lacks the right to describe the component, a call is repeated every 60 s instead of
    polling.
    """

    def __init__(self, component_name: str, sagemaker: SageMakerClient | None, clock: Clock) -> None:
        self._name = component_name
        self._sagemaker = sagemaker
        self._clock = clock
        self._lock = threading.Lock()
        self._called_at = clock.now()
        self._gate = Gate(NoCapacityError, backoff=PAUSES, clock=clock, look=self._look)

    def run(self, send: Callable[[], Answer], *, limit_s: float, notice: Callable[[Waiting], None]) -> Answer:
        """Make a call; while the component has no running copy, wait and repeat the call.

        Args:
            send: the function that makes the call once.
            limit_s: the longest wait in seconds.
            notice: the function that is called with the progress of the wait.

        Raises:
            LimitPassedError: no copy ran when the limit had passed.
            NoCapacityError: the component has failed, so that waiting does not help.
        """
        return self._gate.run(lambda: self._send(send), limit_s=limit_s, notice=notice)

    def answered(self) -> None:
        """Let the waiting calls go on, because a call that did not wait was answered."""
        self._gate.open()

    def _send(self, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._called_at = self._clock.now()
        return send()

    def _look(self) -> bool:
        """Return True if the refused call should be repeated: a copy runs, or enough time has passed.

        Enough time is 60 s if the component cannot be described, and 180 s if no copy is desired.
        """
        since_s = self._clock.now() - self._called_at
        copies = self._copies()
        if copies is None:
            return since_s >= BLIND_CALL_AGAIN_S
        if copies.status == "Failed" and not copies.current:
            raise NoCapacityError(
                "copies-failed",
                f"inference component {self._name}",
                f"has failed ({copies.failure_reason or 'SageMaker gives no reason'})",
                fix="see its log group, and run `cohost wake` to request a copy again, or `cdk deploy`",
            )
        return copies.current > 0 or (copies.desired == 0 and since_s >= CALL_AGAIN_S)

    def _copies(self) -> Copies | None:
        if self._sagemaker is None:
            return None
        try:
            return read_copies(self._sagemaker, self._name)
        except ClientError:
            # A caller with the right to invoke may lack the right to describe the component.
            return None
