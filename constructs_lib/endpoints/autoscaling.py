"""The scaling of an endpoint's instances or copies by AWS Application Auto Scaling.

The scaling consists of a scalable target with a target tracking policy and a schedule, and of step scaling policies.
Each step scaling policy has one step, and an alarm that triggers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from constructs_lib.endpoints.metrics import INVOCATION_NAMESPACE

if TYPE_CHECKING:
    from constructs import IDependable

    from cohost.catalog.sections.scaling import Scaling, ScheduledScaling


_Policy = appscaling.CfnScalingPolicy
_Target = appscaling.CfnScalableTarget


class Autoscaling(Construct):
    """The scaling of the number of instances or copies between bounds, by the load on each one and by a schedule.

    `Autoscaling` uses L1 classes of CDK, because the L2 target requires a role of its own although the service-linked
    role works, and the L2 step policy requires two steps although the service accepts one.

    Args:
        resource_id: the id of the scaled resource in Application Auto Scaling, "endpoint/…" or "inference-component/…".
        scalable_dimension: the number that is scaled, in the words of Application Auto Scaling.
        predefined_metric_type: the metric that target tracking keeps at the target.
        scaling: the catalog's bounds, target, cooldowns and schedule.
        scaled: the scaled resource, which is created before the scaling and deleted after it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        resource_id: str,
        scalable_dimension: str,
        predefined_metric_type: str,
        scaling: Scaling,
        scaled: IDependable,
    ) -> None:
        super().__init__(scope, construct_id)
        self._target = _Target(
            self,
            "Target",
            service_namespace="sagemaker",
            resource_id=resource_id,
            scalable_dimension=scalable_dimension,
            min_capacity=scaling.min,
            max_capacity=scaling.max,
            scheduled_actions=[_scheduled_action(entry) for entry in scaling.schedule] or None,
        )
        self._target.node.add_dependency(scaled)
        _Policy(
            self,
            "Tracking",
            policy_name="tracking",
            policy_type="TargetTrackingScaling",
            scaling_target_id=self._target.ref,
            target_tracking_scaling_policy_configuration=_Policy.TargetTrackingScalingPolicyConfigurationProperty(
                predefined_metric_specification=_Policy.PredefinedMetricSpecificationProperty(
                    predefined_metric_type=predefined_metric_type
                ),
                target_value=scaling.target,
                scale_in_cooldown=scaling.scale_in_cooldown,
                scale_out_cooldown=scaling.scale_out_cooldown,
                disable_scale_in=None if scaling.tracking_scales_in else True,
            ),
        )

    @property
    def scaling_target_id(self) -> str:
        """Return the id of the scalable target, for further policies."""
        return self._target.ref


def _scheduled_action(entry: ScheduledScaling) -> appscaling.CfnScalableTarget.ScheduledActionProperty:
    return _Target.ScheduledActionProperty(
        scheduled_action_name=entry.name,
        schedule=entry.cron,
        # A schedule by rate has no time zone.
        timezone=None if entry.cron.startswith("rate(") else entry.timezone,
        scalable_target_action=_Target.ScalableTargetActionProperty(min_capacity=entry.min, max_capacity=entry.max),
    )


ALARM_PERIOD_SECONDS: Final = 60
WAKE_COOLDOWN_SECONDS: Final = 60


class AlarmedStep(Construct):
    """A change of an inference component's number of copies when one of its metrics crosses a threshold.

    The alarm compares the metric's maximum of each minute with the threshold. A minute without a value does not cross
    the threshold: SageMaker sends no value while the component has no copy, or while no call is refused for lack of a
    copy.

    Args:
        component_name: the inference component whose copies are scaled.
        scaling_target_id: the id of the component's scalable target.
        metric_name: the name of a metric in the namespace AWS/SageMaker.
        comparison: the side of the threshold, itself included, on which the alarm goes off.
        threshold: the threshold, in the metric's unit.
        minutes: the number of minutes in a row after which the alarm goes off.
        adjustment_type: "ChangeInCapacity" adds `adjustment` copies, "ExactCapacity" sets the number to `adjustment`.
        adjustment: a number of copies.
        cooldown: seconds after a step during which no other step is taken.
        description: the alarm's description.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        component_name: str,
        scaling_target_id: str,
        metric_name: str,
        comparison: Literal["GreaterThanOrEqualToThreshold", "LessThanOrEqualToThreshold"],
        threshold: int,
        minutes: int,
        adjustment_type: Literal["ChangeInCapacity", "ExactCapacity"],
        adjustment: int,
        cooldown: int,
        description: str,
    ) -> None:
        super().__init__(scope, construct_id)
        bound = (
            {"metric_interval_lower_bound": 0}
            if comparison.startswith("Greater")
            else {"metric_interval_upper_bound": 0}
        )
        policy = _Policy(
            self,
            "Policy",
            policy_name=construct_id.lower(),
            policy_type="StepScaling",
            scaling_target_id=scaling_target_id,
            step_scaling_policy_configuration=_Policy.StepScalingPolicyConfigurationProperty(
                adjustment_type=adjustment_type,
                metric_aggregation_type="Maximum",
                cooldown=cooldown,
                step_adjustments=[_Policy.StepAdjustmentProperty(scaling_adjustment=adjustment, **bound)],
            ),
        )
        cloudwatch.CfnAlarm(
            self,
            "Alarm",
            alarm_description=description,
            namespace=INVOCATION_NAMESPACE,
            metric_name=metric_name,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="InferenceComponentName", value=component_name)],
            statistic="Maximum",
            period=ALARM_PERIOD_SECONDS,
            evaluation_periods=minutes,
            datapoints_to_alarm=minutes,
            threshold=threshold,
            comparison_operator=comparison,
            treat_missing_data="notBreaching",
            alarm_actions=[policy.ref],
        )


class WakePolicy(AlarmedStep):
    """The policy that adds a copy of a component when a call was refused because the component has no copy.

    Target tracking cannot add the first copy: it divides by the number of copies (AWS: Scale an endpoint to zero
    instances).
    """

    def __init__(self, scope: Construct, construct_id: str, *, component_name: str, scaling_target_id: str) -> None:
        super().__init__(
            scope,
            construct_id,
            component_name=component_name,
            scaling_target_id=scaling_target_id,
            metric_name="NoCapacityInvocationFailures",
            comparison="GreaterThanOrEqualToThreshold",
            threshold=1,
            minutes=1,
            adjustment_type="ChangeInCapacity",
            adjustment=1,
            cooldown=WAKE_COOLDOWN_SECONDS,
            description=f"A call found no copy of {component_name}; one is started, which takes minutes.",
        )


class IdlePolicy(AlarmedStep):
    """The policy that reduces a component's copies to the minimum after `minutes` in which no copy had a call.

    The metric has values only while there are copies, so a component does not count as idle until its first copy runs.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        component_name: str,
        scaling_target_id: str,
        scaling: Scaling,
        minutes: int,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            component_name=component_name,
            scaling_target_id=scaling_target_id,
            metric_name="ConcurrentRequestsPerCopy",
            comparison="LessThanOrEqualToThreshold",
            threshold=0,
            minutes=minutes,
            adjustment_type="ExactCapacity",
            adjustment=scaling.min,
            cooldown=scaling.scale_in_cooldown,
            description=f"No call of {component_name} for {minutes} minutes; its copies go down to {scaling.min}.",
        )
