"""A SageMaker endpoint that serves all models in one inference component, and scales in to zero instances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker

from cohost.catalog.serving import instances_for
from cohost.endpoint.copies import DIMENSION
from cohost.hardware.instances import INSTANCES
from constructs_lib.endpoints.autoscaling import Autoscaling, IdlePolicy, WakePolicy
from constructs_lib.endpoints.hosted_endpoint import VARIANT_NAME, HostedEndpoint, add_log_group, make_name_part_of_id
from constructs_lib.endpoints.metrics import INVOCATION_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_logs as logs
    from constructs import Construct

    from cohost.catalog.sections.scaling import Metric, Scaling
    from constructs_lib.endpoints.hosted_endpoint import Hosting


# AWS API reference: PredefinedMetricSpecification of Application Auto Scaling.
TRACKED: Final[Mapping[Metric, str]] = {
    "invocations": "SageMakerInferenceComponentInvocationsPerCopy",
    "concurrency": "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
}

STARTUP_ENVIRONMENT: Final[Mapping[str, str]] = {"SERVING_LOAD_MODELS": "ALL", "SERVING_WAIT_MODEL_LOADING": "true"}
"""DJL Serving loads all models of its store, and answers no ping before that (docs/decisions/0004-scale-to-zero.md)."""

MIN_MEMORY_REQUIRED_IN_MB: Final = 1024
"""The MiB of host memory that a copy reserves; no limit. ml.g5.xlarge takes 1024, not 4096 (measured by others)."""

BATCH_PERCENT: Final = 5, 50
"""The least and the most percent of a component's copies that an update may replace at a time (API reference:
InferenceComponentRollingUpdatePolicy)."""


class ScaleToZeroEndpoint(HostedEndpoint):
    """An endpoint with one inference component, whose container loads every model of a bundle when it starts.

    Only endpoints with inference components can scale in to zero instances (AWS: Scale an endpoint to zero instances).
    While the component has no copy, a call is refused at once, and makes the component start a copy. A component cannot
    be created without a copy, so a deployment always starts an instance. An update of the component also starts an
    instance.

    When the stack is deleted, its parts are deleted in this order: scaling policies, scalable target, component,
    endpoint, configuration, model. In any other order SageMaker rejects a deletion, or a resource is left behind.

    Args:
        hosting: the endpoint's name, bundle, image, instance type and time-outs; the time-out of the start-up is for
            all models together. A copy takes one GPU, or on a type without GPUs more than half of an instance's cores.
        component_name: the inference component's name, which callers use too.
        copy_count: the number of copies at creation and after an update, 1 or more.
        scaling: the bounds, target, idle time and schedule of the number of copies.
        min_memory_required_in_mb: the host memory that each copy reserves on its instance, in MiB.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        hosting: Hosting,
        component_name: str,
        copy_count: int,
        scaling: Scaling,
        min_memory_required_in_mb: int = MIN_MEMORY_REQUIRED_IN_MB,
    ) -> None:
        super().__init__(scope, construct_id, hosting=hosting)
        self.component_name = component_name
        self.component_log_group = add_log_group(
            self, "ComponentLogs", f"/aws/sagemaker/InferenceComponents/{component_name}"
        )
        self.execution_role.allow_logs(self.component_log_group)
        model = self._add_model(
            sagemaker.CfnModel.ContainerDefinitionProperty(
                image=str(hosting.image),
                model_data_url=hosting.store.model_data_url,
                environment={**STARTUP_ENVIRONMENT, **hosting.environment},
            )
        )
        self._add_endpoint(
            _variant(hosting, scaling),
            execution_role_arn=self.execution_role.role_arn,
            # The configuration refers to neither the policy nor the model, but the model must be deleted after it.
            config_waits_for=(self.execution_role.policy, model),
        )
        self._component = sagemaker.CfnInferenceComponent(
            self,
            "Component",
            inference_component_name=component_name,
            endpoint_name=self._endpoint.attr_endpoint_name,
            variant_name=VARIANT_NAME,
            specification=sagemaker.CfnInferenceComponent.InferenceComponentSpecificationProperty(
                model_name=model.attr_model_name,
                compute_resource_requirements=_requirements(hosting.instance_type, min_memory_required_in_mb),
                startup_parameters=hosting.component_startup(),
            ),
            runtime_config=sagemaker.CfnInferenceComponent.InferenceComponentRuntimeConfigProperty(
                copy_count=copy_count
            ),
            deployment_config=_rolling(scaling) if scaling.highest > 1 else None,
        )
        self._component.node.add_dependency(self.execution_role.policy, self.component_log_group)
        make_name_part_of_id(self._component, component_name)
        self._add_scaling(scaling)

    @property
    def container_log_group(self) -> logs.ILogGroup:
        """Return the log group of the inference component, which its containers write to."""
        return self.component_log_group

    @property
    def component_arn(self) -> str:
        """Return the ARN of the inference component."""
        return self._component.ref

    def metric_concurrent_requests_per_copy(
        self, *, statistic: str = "Maximum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of calls in progress per copy; it has no values without a copy."""
        return self.metric("ConcurrentRequestsPerCopy", statistic=statistic, period=period)

    def metric_no_capacity_invocation_failures(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of calls that were refused because the component had no copy."""
        return self.metric("NoCapacityInvocationFailures", statistic="Sum", period=period)

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow the grantee to call the models, and to describe the component in order to wait for its first copy."""
        return (
            super()
            .grant_invoke(grantee)
            .combine(
                iam.Grant.add_to_principal(
                    grantee=grantee,
                    actions=["sagemaker:DescribeInferenceComponent"],
                    resource_arns=[self.component_arn],
                )
            )
        )

    def _dimensions(self, namespace: str) -> dict[str, str]:
        """Return a metric's dimensions: for calls, those of the component; for instances, those of the endpoint."""
        if namespace == INVOCATION_NAMESPACE:
            return {"InferenceComponentName": self.component_name}
        return super()._dimensions(namespace)

    def _invoked_arns(self) -> list[str]:
        return [self.endpoint_arn, self.component_arn]

    def _add_scaling(self, scaling: Scaling) -> None:
        autoscaling = Autoscaling(
            self,
            "Scaling",
            resource_id=f"inference-component/{self.component_name}",
            scalable_dimension=DIMENSION,
            predefined_metric_type=TRACKED[scaling.metric],
            scaling=scaling,
            scaled=self._component,
        )
        of_component = {"component_name": self.component_name, "scaling_target_id": autoscaling.scaling_target_id}
        WakePolicy(self, "Wake", **of_component)
        if scaling.idle_minutes is not None:
            IdlePolicy(self, "Idle", **of_component, scaling=scaling, minutes=scaling.idle_minutes)


def _variant(hosting: Hosting, scaling: Scaling) -> sagemaker.CfnEndpointConfig.ProductionVariantProperty:
    """Return a production variant without a model, whose number of instances follows the number of copies.

    The variant's maximum of instances is large enough for the highest number of copies, plus the new copies of one
    batch during an update of the component.
    """
    batch = math.ceil(scaling.highest * _batch_percent(scaling) / 100)
    least, most, spare = (
        instances_for(copies, hosting.instance_type) for copies in (scaling.lowest, scaling.highest, batch)
    )
    return sagemaker.CfnEndpointConfig.ProductionVariantProperty(
        variant_name=VARIANT_NAME,
        instance_type=hosting.instance_type,
        initial_instance_count=max(least, 1),
        inference_ami_version=hosting.inference_ami_version,
        managed_instance_scaling=sagemaker.CfnEndpointConfig.ManagedInstanceScalingProperty(
            status="ENABLED", min_instance_count=least, max_instance_count=most + spare
        ),
    )


def _requirements(
    instance_type: str, memory_mb: int
) -> sagemaker.CfnInferenceComponent.InferenceComponentComputeResourceRequirementsProperty:
    """Return a copy's requirements: one GPU; on a CPU instance, over half of its cores, so that only one copy fits."""
    instance = INSTANCES.get(instance_type)
    on_cpu = instance is not None and not instance.gpus
    return sagemaker.CfnInferenceComponent.InferenceComponentComputeResourceRequirementsProperty(
        min_memory_required_in_mb=memory_mb,
        number_of_accelerator_devices_required=None if on_cpu else 1,
        number_of_cpu_cores_required=instance.vcpus // 2 + 1 if instance is not None and on_cpu else None,
    )


def _batch_percent(scaling: Scaling) -> int:
    """Return the percentage of copies that an update replaces at a time: that of one copy, if there are at most 20."""
    least, most = BATCH_PERCENT
    return min(max(100 // scaling.highest, least), most)


def _rolling(scaling: Scaling) -> sagemaker.CfnInferenceComponent.InferenceComponentDeploymentConfigProperty:
    """Return the setting that updates copies batch by batch; SageMaker's default is all copies at once.

    The batch is a percentage, not a number of copies: the number of copies at the time of an update is not known, and
    one copy of a component with only one copy would exceed SageMaker's highest percentage.
    """
    batch = sagemaker.CfnInferenceComponent.InferenceComponentCapacitySizeProperty(
        type="CAPACITY_PERCENT", value=_batch_percent(scaling)
    )
    return sagemaker.CfnInferenceComponent.InferenceComponentDeploymentConfigProperty(
        rolling_update_policy=sagemaker.CfnInferenceComponent.InferenceComponentRollingUpdatePolicyProperty(
            maximum_batch_size=batch, rollback_maximum_batch_size=batch, wait_interval_in_seconds=0
        )
    )
