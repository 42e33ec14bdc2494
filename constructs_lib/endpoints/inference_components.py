"""A SageMaker endpoint with one inference component per model, each on a GPU of its own."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from cohost.routing import ARCHIVE_SUFFIX, own_component_name
from constructs_lib.endpoints.hosted_endpoint import VARIANT_NAME, HostedEndpoint, add_log_group, make_name_part_of_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from constructs_lib.endpoints.hosted_endpoint import Hosting
    from constructs_lib.iam import ExecutionRole


SAME_IDS: Final = "lmi-cohost-components"
"""The name of the endpoint whose components' logical ids do not contain their names: older versions deployed it so."""

LAYOUTS: Final = "ProductionVariants.0.AcceleratorPartitionLayouts"
PARTITION: Final = "Specification.ComputeResourceRequirements.AcceleratorPartitionType"
"""The properties of partitions, by the names that SageMaker's API gives them."""


def schema_has_partitions() -> bool:
    """Return True if CloudFormation's resource types have the properties of GPU partitions.

    The L1 classes of aws-cdk-lib are generated from the schemas of the resource types. The two properties of GPU
    partitions are missing in the L1 classes of aws-cdk-lib 2.275.0, and in the schemas that cfn-lint ships.
    """
    variant = sagemaker.CfnEndpointConfig.ProductionVariantProperty
    needs = sagemaker.CfnInferenceComponent.InferenceComponentComputeResourceRequirementsProperty
    return hasattr(variant, "accelerator_partition_layouts") and hasattr(needs, "accelerator_partition_type")


class ComponentEndpoint(HostedEndpoint):
    """An endpoint with one inference component per model; SageMaker adds and removes instances as the copies need them.

    Args:
        hosting: the endpoint's name, archives, image, instance type and time-outs; each copy takes a whole GPU. The
            name of a component is the endpoint's name, a hyphen and the model's name.
        models: the names of the models; each model's archive in the store has its name.
        min_instance_count: the least number of instances of managed scaling, 1 or more.
        max_instance_count: the most instances of managed scaling.
        copy_count: the number of copies of each component, 1 or more.
        min_memory_required_in_mb: the host memory that each copy reserves on its instance, in MiB.
        partitions: the GPU partition of each model; empty if each copy takes a whole GPU.
        layout: the partitions of each GPU; empty without `partitions`.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        hosting: Hosting,
        models: Iterable[str],
        min_instance_count: int,
        max_instance_count: int,
        copy_count: int,
        min_memory_required_in_mb: int,
        partitions: Mapping[str, str] = MappingProxyType({}),
        layout: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, construct_id, hosting=hosting)
        variant = sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=VARIANT_NAME,
            instance_type=hosting.instance_type,
            initial_instance_count=min_instance_count,
            inference_ami_version=hosting.inference_ami_version,
            managed_instance_scaling=sagemaker.CfnEndpointConfig.ManagedInstanceScalingProperty(
                status="ENABLED", min_instance_count=min_instance_count, max_instance_count=max_instance_count
            ),
        )
        self._add_endpoint(
            variant,
            execution_role_arn=self.execution_role.role_arn,
            config_waits_for=(self.execution_role.policy,),
        )
        if layout:
            self._config.add_property_override(LAYOUTS, [{"AcceleratorPartitionTypes": list(layout)}])
        needs = sagemaker.CfnInferenceComponent.InferenceComponentComputeResourceRequirementsProperty(
            number_of_accelerator_devices_required=1, min_memory_required_in_mb=min_memory_required_in_mb
        )
        parts = Construct(self, "Components")
        self.components = {
            model: ModelComponent(
                parts,
                model,
                component_name=own_component_name(self.endpoint_name, model),
                same_id=self.endpoint_name == SAME_IDS,
                endpoint_name=self._endpoint.attr_endpoint_name,
                role=self.execution_role,
                copy_count=copy_count,
                specification=sagemaker.CfnInferenceComponent.InferenceComponentSpecificationProperty(
                    container=sagemaker.CfnInferenceComponent.InferenceComponentContainerSpecificationProperty(
                        image=str(hosting.image),
                        artifact_url=f"{hosting.store.model_data_url}{model}{ARCHIVE_SUFFIX}",
                        environment=dict(hosting.environment) or None,
                    ),
                    compute_resource_requirements=needs,
                    startup_parameters=hosting.component_startup(),
                ),
            )
            for model in models
        }
        # A component may start instances, and SageMaker creates no component while the endpoint changes for another.
        for first, second in itertools.pairwise(self.components.values()):
            second.create_after(first)
        for model, partition in partitions.items():
            self.components[model].take_partition(partition)

    @property
    def component_names(self) -> dict[str, str]:
        """Return the name of each model's inference component, by model name."""
        return {model: component.component_name for model, component in self.components.items()}

    def _invoked_arns(self) -> list[str]:
        return [self.endpoint_arn, *(component.component_arn for component in self.components.values())]


class ModelComponent(Construct):
    """The inference component of one model, and the log group of its containers.

    Args:
        scope: the construct that holds all components of the endpoint.
        construct_id: the model's name.
        component_name: the component's name, which callers use.
        same_id: True leaves the component's name out of the resource's logical id.
        endpoint_name: the endpoint's name, as a reference to the endpoint resource.
        role: the role that the containers run with; this construct allows it to write the log group.
        copy_count: the number of copies at creation and after an update.
        specification: the component's container and its requirements.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        component_name: str,
        same_id: bool,
        endpoint_name: str,
        role: ExecutionRole,
        copy_count: int,
        specification: sagemaker.CfnInferenceComponent.InferenceComponentSpecificationProperty,
    ) -> None:
        super().__init__(scope, construct_id)
        self.component_name = component_name
        log_group = add_log_group(self, "Logs", f"/aws/sagemaker/InferenceComponents/{component_name}")
        role.allow_logs(log_group)
        self._component = sagemaker.CfnInferenceComponent(
            self,
            "Component",
            inference_component_name=component_name,
            endpoint_name=endpoint_name,
            variant_name=VARIANT_NAME,
            specification=specification,
            runtime_config=sagemaker.CfnInferenceComponent.InferenceComponentRuntimeConfigProperty(
                copy_count=copy_count
            ),
        )
        self._component.node.add_dependency(role.policy, log_group)
        if not same_id:
            make_name_part_of_id(self._component, component_name)

    @property
    def component_arn(self) -> str:
        """Return the ARN of the component."""
        return self._component.ref

    def take_partition(self, partition: str) -> None:
        """Let each copy take a partition of a GPU of this type instead of a whole GPU."""
        self._component.add_property_override(PARTITION, partition)

    def create_after(self, other: ModelComponent) -> None:
        """Create this component after another one, and delete this one first; log groups have no such order."""
        self._component.node.add_dependency(other._component)
