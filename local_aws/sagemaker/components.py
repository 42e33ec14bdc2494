"""The InferenceComponent operations of the control plane (AWS API reference: CreateInferenceComponent and its like)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.component import InferenceComponent
from local_aws.sagemaker.component_rules import (
    check_copies_at_creation,
    check_endpoint,
    check_model,
    check_specification,
    check_update,
    variant_for,
)
from local_aws.sagemaker.container_rules import check_container, check_model_data
from local_aws.sagemaker.copies import ComponentPlan
from local_aws.sagemaker.faults import ValidationException, unsupported
from local_aws.sagemaker.listing import page
from local_aws.sagemaker.models import container_of
from local_aws.sagemaker.placement import Resources
from local_aws.sagemaker.plan import container_plan
from local_aws.sagemaker.registry import tags_of

if TYPE_CHECKING:
    from local_aws.sagemaker.account import Account
    from local_aws.sagemaker.component import ComponentDeployments
    from local_aws.sagemaker.front import Front
    from local_aws.sagemaker.plan import VariantPlan
    from local_aws.sagemaker.records import Records


class InferenceComponents:
    """Creates, describes, lists, updates and deletes inference components."""

    def __init__(self, account: Account, records: Records, deployments: ComponentDeployments, front: Front) -> None:
        self._account = account
        self._components = records.components
        self._endpoints = records.endpoints
        self._models = records.models
        self._deployments = deployments
        self._front = front

    async def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateInferenceComponent."""
        name, specification = request["InferenceComponentName"], _specification(request)
        self._components.check_free(name)
        endpoint = self._endpoints.get(request["EndpointName"])
        check_endpoint(endpoint, "create")
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
        """UpdateInferenceComponent."""
        component = self._changeable(request["InferenceComponentName"], "update")
        check_update(request)
        copies = (request.get("RuntimeConfig") or {"CopyCount": component.desired_copies})["CopyCount"]
        if request.get("Specification") is None:
            self._deployments.scale(component, copies)
        else:
            specification = _merged(component.definition, _specification(request))
            plan = await self._plan(component.name, specification, component.variant.plan)
            component.deployment = request.get("DeploymentConfig")
            self._deployments.update(component, specification, plan, copies)
        return {"InferenceComponentArn": component.arn}

    async def update_runtime(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateInferenceComponentRuntimeConfig."""
        component = self._changeable(request["InferenceComponentName"], "update")
        self._deployments.scale(component, request["DesiredRuntimeConfig"]["CopyCount"])
        return {"InferenceComponentArn": component.arn}

    async def delete(self, request: dict[str, Any]) -> None:
        """DeleteInferenceComponent."""
        component = self._components.get(request["InferenceComponentName"])
        component.check_steady("delete")
        check_endpoint(component.endpoint, "delete")
        self._deployments.delete(component)

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeInferenceComponent."""
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
        """ListInferenceComponents."""
        components, more = page(self._components, request)
        return {"InferenceComponents": [_summary(component) for component in components], **more}

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
        check_specification(specification, variant.instance_type)
        role = variant.role
        if (model_name := specification.get("ModelName")) is not None:
            model = self._models.get(model_name).definition
            container, role = container_of(model), model.get("ExecutionRoleArn", role)
        else:
            container = _as_container(specification["Container"])
            check_container(container, account_id=self._account.account_id, region=self._account.region)
            await check_model_data(container, self._front)
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
        raise unsupported("Specifications, one for each instance type,")
    if request.get("Specification") is None:
        raise ValidationException("Specification: an inference component must say what it runs and what it needs")
    specification: dict[str, Any] = request["Specification"]
    return specification


def _merged(former: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """A specification with what an update leaves out; a new model takes the place of a container, and back."""
    runs = {"ModelName", "Container"}
    kept = {key: value for key, value in former.items() if key not in runs or not runs & wanted.keys()}
    return {**kept, **wanted}


def _as_container(container: dict[str, Any]) -> dict[str, Any]:
    """A component's container in the form that CreateModel has it."""
    renamed = {("ModelDataUrl" if key == "ArtifactUrl" else key): value for key, value in container.items()}
    return {key: value for key, value in renamed.items() if value is not None}


def _summary(component: InferenceComponent) -> dict[str, Any]:
    return {
        "InferenceComponentName": component.name,
        "InferenceComponentArn": component.arn,
        "EndpointName": component.endpoint.name,
        "EndpointArn": component.endpoint.arn,
        "VariantName": component.variant_name,
        "InferenceComponentStatus": component.status,
        "CreationTime": component.created,
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
