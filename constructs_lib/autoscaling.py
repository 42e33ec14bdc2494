"""A scalable target with its target tracking policy and its schedule (AWS: Application Auto Scaling)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_applicationautoscaling as appscaling
from constructs import Construct

if TYPE_CHECKING:
    from constructs import IDependable

    from cohost.catalog.sections.scaling import Scaling, ScheduledScaling

_Policy = appscaling.CfnScalingPolicy
_Target = appscaling.CfnScalableTarget


class Autoscaling(Construct):
    """Keeps the number of something between bounds, by how much each of them has to do and by the clock.

    L1 classes, since the L2 target asks for a role of its own where the service-linked one does, and the L2 step
    policy for two steps where the service takes one.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
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
        """The id by which further policies name the target."""
        return self._target.ref


def _scheduled_action(entry: ScheduledScaling) -> appscaling.CfnScalableTarget.ScheduledActionProperty:
    return _Target.ScheduledActionProperty(
        scheduled_action_name=entry.name,
        schedule=entry.cron,
        # A rate has none.
        timezone=None if entry.cron.startswith("rate(") else entry.timezone,
        scalable_target_action=_Target.ScalableTargetActionProperty(min_capacity=entry.min, max_capacity=entry.max),
    )
