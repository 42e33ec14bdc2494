"""The copies of a scale-to-zero endpoint's inference component, and the bounds within which auto scaling keeps them.

Source: AWS API reference, DescribeInferenceComponent, UpdateInferenceComponentRuntimeConfig and RegisterScalableTarget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import ClientError

from cohost.errors import RoutingError, StackError
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.deployment import Deployment

_UNDER_WAY = frozenset({"Creating", "Updating"})
NAMESPACE: Literal["sagemaker"] = "sagemaker"
DIMENSION: Literal["sagemaker:inference-component:DesiredCopyCount"] = "sagemaker:inference-component:DesiredCopyCount"


class UnderWayError(StackError):
    """A change of the component goes on, and no other one is taken until it has ended."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """How many copies are wanted and how many run, and the component's status with the reason of a failure."""

    status: str
    desired: int
    current: int
    failure_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Auto scaling's least and most copies; `suspended`: neither a call nor the schedule adds copies."""

    minimum: int
    maximum: int
    suspended: bool = False


def read_copies(sagemaker: SageMakerClient, component_name: str) -> Copies:
    """Ask SageMaker about a component; raises botocore's ClientError when it refuses."""
    found = sagemaker.describe_inference_component(InferenceComponentName=component_name)
    runtime = found.get("RuntimeConfig", {})
    return Copies(
        status=found["InferenceComponentStatus"],
        desired=runtime.get("DesiredCopyCount", 0),
        current=runtime.get("CurrentCopyCount", 0),
        failure_reason=found.get("FailureReason") or None,
    )


def need_component(deployment: Deployment, command: str) -> str:
    """The name of the deployment's component.

    Raises:
        RoutingError: it is a multi-model endpoint, which has no copies to set.
    """
    if deployment.inference_component_name is None:
        msg = (
            f"cohost {command}: endpoint {deployment.endpoint_name!r} has the topology {deployment.topology!r}, whose "
            f"instances cannot go to zero, because SageMaker refuses that; allowed: {SCALE_TO_ZERO}; fix: set "
            f"`topology: {SCALE_TO_ZERO}` in the catalog and deploy, or run `cdk destroy {deployment.stack_name}` "
            "while nobody calls"
        )
        raise RoutingError(msg)
    return deployment.inference_component_name


class Component:
    """One deployed component. All methods raise StackError when the service refuses."""

    def __init__(self, deployment: Deployment, name: str, session: boto3.Session) -> None:
        self.name = name
        self._stack = deployment.stack_name
        self._sagemaker = session.client("sagemaker", region_name=deployment.region)
        self._scaling = session.client("application-autoscaling", region_name=deployment.region)

    def copies(self) -> Copies:
        """Its copies now."""
        try:
            return read_copies(self._sagemaker, self.name)
        except ClientError as error:
            raise self._fault("cannot be looked up", error) from error

    def set_copies(self, count: int) -> None:
        """Ask for so many copies; raises UnderWayError while the last change goes on."""
        try:
            self._sagemaker.update_inference_component_runtime_config(
                InferenceComponentName=self.name, DesiredRuntimeConfig={"CopyCount": count}
            )
        except ClientError as error:
            fault = self._fault(f"cannot be set to {count} copies", error)
            raise (UnderWayError(str(fault)) if self.copies().status in _UNDER_WAY else fault) from error

    def bounds(self) -> Bounds | None:
        """Its scalable target's bounds; None where nothing scales it."""
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
        """Change its scalable target, which must be there."""
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
        reason = error.response["Error"].get("Message", str(error))
        return StackError(
            f"inference component {self.name!r} {what}: {reason}; fix: wait until a change under way has ended "
            f"(`cohost status`), check your rights, or run `cdk deploy {self._stack}` if it was deleted"
        )
