"""A scalable target with its target tracking policy and its schedule (AWS: Application Auto Scaling).

Also a step scaling policy of one step, with the alarm that triggers it.
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
    """Keeps the number of instances or copies between bounds, by the load on each of them and by a schedule.

    L1 classes, because the L2 target requires a role of its own although the service-linked one works, and the L2 step
    policy requires two steps although the service accepts one.

    Args:
        resource_id: what is scaled, in the words of Application Auto Scaling.
        scalable_dimension: which number of it.
        predefined_metric_type: the metric that is kept at the target.
        scaling: bounds, target, cooldowns and schedule.
        scaled: the resource that must be there before, and go after.
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
        """Return the id by which further policies name the target."""
        return self._target.ref


def _scheduled_action(entry: ScheduledScaling) -> appscaling.CfnScalableTarget.ScheduledActionProperty:
    return _Target.ScheduledActionProperty(
        scheduled_action_name=entry.name,
        schedule=entry.cron,
        # A rate has none.
        timezone=None if entry.cron.startswith("rate(") else entry.timezone,
        scalable_target_action=_Target.ScalableTargetActionProperty(min_capacity=entry.min, max_capacity=entry.max),
    )


ALARM_PERIOD_SECONDS: Final = 60
WAKE_COOLDOWN_SECONDS: Final = 60


class AlarmedStep(Construct):
    """A change of an inference component's number of copies when one of its metrics crosses a threshold.

    The alarm looks at the metric's maximum of each minute. A minute without a value crosses nothing: SageMaker
    sends no value while there is no copy, or no call is refused for want of one.

    Args:
        component_name: whose copies.
        scaling_target_id: the target to scale.
        metric_name: the metric, of AWS/SageMaker.
        comparison: on which side of the threshold the alarm goes off.
        threshold: the value that the metric must cross.
        minutes: for how many minutes in a row.
        adjustment_type: "ChangeInCapacity" adds `adjustment` copies, "ExactCapacity" sets the number to it.
        adjustment: see there.
        cooldown: seconds after a step during which there is no other.
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
    """Adds one copy when a call was refused because there is none.

    Target tracking cannot do that: it divides by the number of copies (AWS: Scale an endpoint to zero instances).
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
    """Scales in to the minimum after `idle_minutes` in which no copy had anything to do.

    The metric has values only while there are copies, so nothing counts as idle while the first of them is started.
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
