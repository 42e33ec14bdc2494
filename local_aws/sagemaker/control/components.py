"""The InferenceComponent operations of the control plane, and the rules for a component (AWS API reference).

Sources of the errors' texts: "Inference Components are not supported in this Endpoint …" is quoted in
hashicorp/terraform-provider-aws#40644, "Inference components copy count an integer larger than 0" in
stdapi-ai/stdapi.ai#43; the text for a batch size outside its range is the emulator's own. The rule that an update must
have a specification or a copy count is from hashicorp/terraform-provider-aws.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from local_aws.kit.errors import ValidationException
from local_aws.kit.named_resources import page, tags_of
from local_aws.sagemaker.control.models import check_container, check_model_data
from local_aws.sagemaker.control.partitions import check_partition, check_same_partition
from local_aws.sagemaker.errors import unsupported
from local_aws.sagemaker.hosting.component_variant import ComponentPlan, ComponentVariant
from local_aws.sagemaker.hosting.endpoint_snapshot import MULTI_MODEL, container_of, container_plan
from local_aws.sagemaker.hosting.inference_component import InferenceComponent
from local_aws.sagemaker.hosting.placement import NO_ROOM, Resources, schedulable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.endpoint_snapshot import VariantPlan
    from local_aws.sagemaker.hosting.inference_component import ComponentDeployments
    from local_aws.sagemaker.state import SageMakerState


_MOST_VARIABLES = 16  # AWS template reference: AWS::SageMaker::InferenceComponent, EnvironmentMap
_BATCH_PERCENT = 5, 50
_UNSUPPORTED = ("BaseInferenceComponentName", "DataCacheConfig", "InstanceType", "SchedulingConfig")


def check_endpoint(endpoint: Endpoint, wish: str) -> None:
    """Check that components of an endpoint can be changed; `wish` is the verb in the error's text, such as "create".

    Raises:
        ValidationException: the endpoint is not one for inference components, or is not in service.
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
    """Return the variant `name` of an endpoint for inference components, or its only variant if `name` is None.

    Raises:
        ValidationException: the endpoint has no such variant, or several and `name` is None.
    """
    variants = {} if endpoint.fleet is None else endpoint.fleet.variants
    if name is None and len(variants) > 1:
        raise ValidationException(f"VariantName: the endpoint has several variants, name one of {', '.join(variants)}")
    variant = next(iter(variants.values())) if name is None else variants.get(name)
    if not isinstance(variant, ComponentVariant):
        raise ValidationException(f'Variant {name} not found for endpoint "{endpoint.arn}".')
    return variant


def check_specification(specification: Mapping[str, Any], variant: VariantPlan) -> None:
    """Check a component's Specification on a variant against the rules that botocore's model of the request lacks.

    Raises:
        ValidationException: a rule is broken, a requested feature is not emulated, or a copy of the component does
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
    check_partition(requirements, variant.partitions)
    if not schedulable(variant.instance_type, variant.partitions).holds(Resources.required(requirements)):
        raise ValidationException(NO_ROOM)


def check_model(container: Mapping[str, Any]) -> None:
    """Check that a container can be deployed as an inference component.

    Raises:
        ValidationException: the container is multi-model.
    """
    if container.get("Mode") == MULTI_MODEL:
        raise ValidationException(
            "A model whose container has Mode MultiModel cannot be deployed as an inference component"
        )


def check_copies_at_creation(count: int) -> None:
    """Raise ValidationException if CreateInferenceComponent asks for a component without copies."""
    if count < 1:
        raise ValidationException("Inference components copy count an integer larger than 0")


def check_update(request: Mapping[str, Any], copies: int) -> None:
    """Check a request of UpdateInferenceComponent; the component has `copies` copies now.

    Raises:
        ValidationException: there is nothing to update, the batch size is too large or too small, or a requested
            feature is not emulated.
    """
    if request.get("Specification") is None and request.get("RuntimeConfig") is None:
        raise ValidationException("Specification or RuntimeConfig: an update needs one of them")
    deployment = request.get("DeploymentConfig") or {}
    if deployment.get("AutoRollbackConfiguration"):
        raise unsupported("AutoRollbackConfiguration of a deployment")
    if (policy := deployment.get("RollingUpdatePolicy")) is not None:
        _check_batch(policy["MaximumBatchSize"], copies)


def _check_batch(size: Mapping[str, Any], copies: int) -> None:
    """Check a MaximumBatchSize against its range (AWS API reference: InferenceComponentRollingUpdatePolicy)."""
    percent = size["Value"]
    if size["Type"] == "COPY_COUNT":
        percent = math.inf if copies == 0 else 100 * percent / copies
    least, most = _BATCH_PERCENT
    if not least <= percent <= most:
        raise ValidationException(
            f"MaximumBatchSize {size['Value']} ({size['Type']}) must be between {least}% and {most}% of the copy count "
            f"of the inference component, which is {copies}"
        )


def _check_requirements(requirements: Mapping[str, Any]) -> None:
    accelerators = requirements.get("NumberOfAcceleratorDevicesRequired", 0)
    if accelerators != int(accelerators):
        raise ValidationException(
            f"NumberOfAcceleratorDevicesRequired {accelerators} must be a whole number: accelerators are not shared"
        )
    least, most = requirements["MinMemoryRequiredInMb"], requirements.get("MaxMemoryRequiredInMb")
    if most is not None and most < least:
        raise ValidationException(f"MaxMemoryRequiredInMb {most} must not be less than MinMemoryRequiredInMb {least}")


class InferenceComponents:
    """Create, describe, list, update and delete inference components."""

    def __init__(
        self, account: Account, state: SageMakerState, deployments: ComponentDeployments, clients: ServiceClients
    ) -> None:
        self._account = account
        self._components = state.components
        self._endpoints = state.endpoints
        self._models = state.models
        self._deployments = deployments
        self._clients = clients

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer CreateInferenceComponent."""
        name, specification = request["InferenceComponentName"], _specification(request)
        self._components.check_free(name)
        endpoint = self._endpoints.get(request["EndpointName"])
        check_endpoint(endpoint, "create")
        self._check_alone(endpoint)
        variant = variant_for(endpoint, request.get("VariantName"))
        copies = (request.get("RuntimeConfig") or {"CopyCount": 1})["CopyCount"]
        check_copies_at_creation(copies)
        component = InferenceComponent(
            name=name,
            arn=self._components.arn(name),
            definition=specification,
            tags=tags_of(request),
            endpoint=endpoint,
            variant_name=variant.plan.name,
            plan=await self._plan(name, specification, variant.plan),
            desired_copies=copies,
        )
        self._deployments.create(component)
        return {"InferenceComponentArn": component.arn}

    async def update(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer UpdateInferenceComponent."""
        component = self._changeable(request["InferenceComponentName"], "update")
        check_update(request, component.desired_copies)
        copies = (request.get("RuntimeConfig") or {"CopyCount": component.desired_copies})["CopyCount"]
        if request.get("Specification") is None:
            self._deployments.scale(component, copies)
        else:
            specification = _merged(component.definition, _specification(request))
            check_same_partition(component.definition, specification)
            plan = await self._plan(component.name, specification, component.variant.plan)
            component.deployment = request.get("DeploymentConfig")
            self._deployments.update(component, specification, plan, copies)
        return {"InferenceComponentArn": component.arn}

    async def update_runtime(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer UpdateInferenceComponentRuntimeConfig."""
        component = self._changeable(request["InferenceComponentName"], "update")
        self._deployments.scale(component, request["DesiredRuntimeConfig"]["CopyCount"])
        return {"InferenceComponentArn": component.arn}

    async def delete(self, request: dict[str, Any]) -> None:
        """Answer DeleteInferenceComponent."""
        component = self._components.get(request["InferenceComponentName"])
        component.check_steady("delete")
        check_endpoint(component.endpoint, "delete")
        self._deployments.delete(component)

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DescribeInferenceComponent."""
        component = self._components.get(request["InferenceComponentName"])
        answer = {
            **_summary(component),
            "Specification": _described(component),
            "RuntimeConfig": {
                "DesiredCopyCount": component.desired_copies,
                "CurrentCopyCount": component.current_copies,
            },
        }
        if component.failure_reason is not None:
            answer["FailureReason"] = component.failure_reason
        if component.deployment is not None:
            answer["LastDeploymentConfig"] = component.deployment
        return answer

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListInferenceComponents."""
        components, more = page(self._components, request)
        return {"InferenceComponents": [_summary(component) for component in components], **more}

    def _check_alone(self, endpoint: Endpoint) -> None:
        """Raise ValidationException while another component of the endpoint is being created.

        The rule that only one component is created at a time is inferred: AWS's samples show the endpoint as Updating
        during a creation, which may start instances.
        """
        if any(one.endpoint is endpoint and one.under_way == "CREATE_IN_PROGRESS" for one in self._components):
            raise ValidationException(
                f'Cannot create inference component while endpoint "{endpoint.arn}" is in state Updating.'
            )

    def _changeable(self, name: str, wish: str) -> InferenceComponent:
        component = self._components.get(name)
        component.check_steady(wish)
        check_endpoint(component.endpoint, wish)
        if component.status == "Failed":
            raise ValidationException(
                f'Cannot {wish} failed inference component "{component.arn}". Delete it and create it anew.'
            )
        return component

    async def _plan(self, name: str, specification: dict[str, Any], variant: VariantPlan) -> ComponentPlan:
        check_specification(specification, variant)
        role = variant.role
        if (model_name := specification.get("ModelName")) is not None:
            model = self._models.get(model_name).definition
            container, role = container_of(model), model.get("ExecutionRoleArn", role)
        else:
            container = _as_container(specification["Container"])
            check_container(container, account_id=self._account.account_id, region=self._account.region)
            await check_model_data(container, role, self._clients)
        check_model(container)
        startup = specification.get("StartupParameters") or {}
        return ComponentPlan(
            name=name,
            container=container_plan(
                container,
                role=role,
                memory_mb=None,
                startup_timeout_s=startup.get("ContainerStartupHealthCheckTimeoutInSeconds"),
            ),
            resources=Resources.required(specification["ComputeResourceRequirements"]),
        )


def _specification(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("Specifications"):
        raise unsupported("Specifications, one for each instance type")
    if request.get("Specification") is None:
        raise ValidationException("Specification: an inference component must say what it runs and what it needs")
    specification: dict[str, Any] = request["Specification"]
    return specification


def _merged(former: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Complete an update from the former Specification; keep its ModelName or Container if the update has neither."""
    runs = {"ModelName", "Container"}
    kept = {key: value for key, value in former.items() if key not in runs or not runs & wanted.keys()}
    return {**kept, **wanted}


def _as_container(container: dict[str, Any]) -> dict[str, Any]:
    """Convert the Container of a component's Specification to a ContainerDefinition of CreateModel."""
    renamed = {("ModelDataUrl" if key == "ArtifactUrl" else key): value for key, value in container.items()}
    return {key: value for key, value in renamed.items() if value is not None}


def _summary(component: InferenceComponent) -> dict[str, Any]:
    return {
        **component.summary("InferenceComponent"),
        "EndpointName": component.endpoint.name,
        "EndpointArn": component.endpoint.arn,
        "VariantName": component.variant_name,
        "InferenceComponentStatus": component.status,
        "LastModifiedTime": component.last_modified,
    }


def _described(component: InferenceComponent) -> dict[str, Any]:
    specification = dict(component.definition)
    if (container := specification.get("Container")) is not None:
        image = component.plan.container.image
        deployed = {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": component.created}
        rest = {key: value for key, value in container.items() if key != "Image"}
        specification["Container"] = {"DeployedImage": deployed, **rest}
    return specification
