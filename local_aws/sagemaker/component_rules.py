"""What SageMaker demands of an inference component, beyond the shape of the request.

Texts: "Inference Components are not supported in this Endpoint …" is quoted in
hashicorp/terraform-provider-aws#40644, "Inference components copy count an integer larger than 0" in
stdapi-ai/stdapi.ai#43. That an update must bring a specification or a copy count is in hashicorp's provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.component_variant import NO_ROOM, ComponentVariant
from local_aws.sagemaker.container_rules import MULTI_MODEL
from local_aws.sagemaker.faults import ValidationException, unsupported
from local_aws.sagemaker.placement import Resources, schedulable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.sagemaker.endpoint import Endpoint

_MOST_VARIABLES = 16  # AWS template reference: AWS::SageMaker::InferenceComponent, EnvironmentMap
_UNSUPPORTED = ("BaseInferenceComponentName", "DataCacheConfig", "InstanceType", "SchedulingConfig")


def check_endpoint(endpoint: Endpoint, wish: str) -> None:
    """Check that components of an endpoint can be changed; `wish` is the verb.

    Raises:
        ValidationException: the endpoint is not made of components, or is not in service.
    """
    if endpoint.fleet is not None and not endpoint.fleet.of_components:
        raise ValidationException(
            "Inference Components are not supported in this Endpoint. Please make sure this endpoint can deploy "
            "inference components."
        )
    if endpoint.fleet is None or endpoint.status != "InService":
        raise ValidationException(
            f'Cannot {wish} inference component while endpoint "{endpoint.arn}" is in state {endpoint.status}.'
        )


def variant_for(endpoint: Endpoint, name: str | None) -> ComponentVariant:
    """The variant that a component is to be on; the only one where none is named.

    Raises:
        ValidationException: there is none of that name, or one of several must be named.
    """
    variants = {} if endpoint.fleet is None else endpoint.fleet.variants
    if name is None and len(variants) > 1:
        raise ValidationException(f"VariantName: the endpoint has several variants, name one of {', '.join(variants)}")
    variant = next(iter(variants.values())) if name is None else variants.get(name)
    if not isinstance(variant, ComponentVariant):
        raise ValidationException(f'Variant {name} not found for endpoint "{endpoint.arn}".')
    return variant


def check_specification(specification: Mapping[str, Any], instance_type: str) -> None:
    """Check what a component runs and takes.

    Raises:
        ValidationException: a rule is broken, a feature is asked for that the emulation does not have, or a copy does
            not fit on an empty instance.
    """
    for member in _UNSUPPORTED:
        if specification.get(member):
            raise unsupported(f"{member} of an inference component's specification")
    if (specification.get("ModelName") is None) == (specification.get("Container") is None):
        raise ValidationException(
            "Specification: an inference component needs a ModelName or a Container, and not both"
        )
    environment = (specification.get("Container") or {}).get("Environment") or {}
    if len(environment) > _MOST_VARIABLES:
        raise ValidationException(
            f"Environment: {len(environment)} variables; the container of an inference component takes "
            f"{_MOST_VARIABLES} at most"
        )
    if (requirements := specification.get("ComputeResourceRequirements")) is None:
        raise ValidationException("ComputeResourceRequirements: an inference component must say what it needs")
    _check_requirements(requirements)
    if not schedulable(instance_type).holds(Resources.required(requirements)):
        raise ValidationException(NO_ROOM)


def check_model(container: Mapping[str, Any]) -> None:
    """Check that a container can be a component's.

    Raises:
        ValidationException: it is a multi-model container.
    """
    if container.get("Mode") == MULTI_MODEL:
        raise ValidationException(
            "A model whose container has Mode MultiModel cannot be deployed as an inference component"
        )


def check_copies_at_creation(count: int) -> None:
    """Raise ValidationException for a component that is to start without copies."""
    if count < 1:
        raise ValidationException("Inference components copy count an integer larger than 0")


def check_update(request: Mapping[str, Any]) -> None:
    """Check the members of UpdateInferenceComponent.

    Raises:
        ValidationException: there is nothing to update.
    """
    if request.get("Specification") is None and request.get("RuntimeConfig") is None:
        raise ValidationException("Specification or RuntimeConfig: an update needs one of them")
    if (request.get("DeploymentConfig") or {}).get("AutoRollbackConfiguration"):
        raise unsupported("AutoRollbackConfiguration of a deployment")


def _check_requirements(requirements: Mapping[str, Any]) -> None:
    accelerators = requirements.get("NumberOfAcceleratorDevicesRequired", 0)
    if accelerators != int(accelerators):
        raise ValidationException(
            f"NumberOfAcceleratorDevicesRequired {accelerators} must be a whole number: accelerators are not shared"
        )
    least, most = requirements["MinMemoryRequiredInMb"], requirements.get("MaxMemoryRequiredInMb")
    if most is not None and most < least:
        raise ValidationException(f"MaxMemoryRequiredInMb {most} must not be less than MinMemoryRequiredInMb {least}")
