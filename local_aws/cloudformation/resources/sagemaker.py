"""Resource types of SageMaker: models, endpoint configurations, endpoints and inference components.

For each type, `Ref` gives the ARN (AWS: template reference of each type). `Fn::GetAtt` gives the name of models,
endpoint configurations and endpoints, but not of inference components: a template that needs a component's name must
set the name itself.

In AWS's schema, no property of AWS::SageMaker::InferenceComponent causes a replacement, and SageMaker can neither
rename a component nor move it to another endpoint. A changed name, endpoint or variant therefore fails in the emulation
with an error that names the property; CloudFormation would leave the component unchanged.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import (
    Outcome,
    Request,
    ResourceType,
    call,
    call_if_there,
    is_missing,
    retag,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


NAME_LIMIT: Final = 63
TAGGING: Final = "list_tags", "delete_tags", "add_tags"
POLL_SECONDS: Final = 0.2
# SageMaker may take an hour or more until an endpoint is Failed. This limit only ends a wait that hangs.
ENDPOINT_TIMEOUT_SECONDS: Final = 3 * 3600
CANCELLED: Final = "Resource creation cancelled"


class _Unchangeable(ResourceType):
    """A resource type that can only change its tags in place; every other change creates a new resource."""

    noun: ClassVar[str]
    """The resource's name in boto3's methods, as in `create_NOUN`."""

    def create(self, request: Request) -> Outcome:
        """Make the resource."""
        name = {self._named: request.name(self._named, limit=NAME_LIMIT)}
        properties = {key: value for key, value in request.properties.items() if key != "Tags"}
        tags = request.tag_list() or None
        answer = call(request.client("sagemaker"), f"create_{self.noun}", **properties | name, Tags=tags)
        return Outcome(physical_id=answer[self._named.replace("Name", "Arn")], attributes=name)

    def update(self, request: Request) -> Outcome:
        """Change the tags."""
        retag(request, "sagemaker", TAGGING, ResourceArn=request.physical_id)
        return Outcome(physical_id=request.physical_id, attributes={self._named: _name(request, self._named)})

    def delete(self, request: Request) -> None:
        """Remove the resource."""
        name = {self._named: _name(request, self._named)}
        call_if_there(request.client("sagemaker"), f"delete_{self.noun}", **name)

    @property
    def _named(self) -> str:
        return str(self.name_property)


class Model(_Unchangeable):
    """The resource type AWS::SageMaker::Model."""

    type: ClassVar[str] = "AWS::SageMaker::Model"
    noun: ClassVar[str] = "model"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "Containers", "EnableNetworkIsolation", "ExecutionRoleArn", "InferenceExecutionConfig", "ModelName",
            "PrimaryContainer", "Tags", "VpcConfig",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "ModelName"


class EndpointConfig(_Unchangeable):
    """The resource type AWS::SageMaker::EndpointConfig."""

    type: ClassVar[str] = "AWS::SageMaker::EndpointConfig"
    noun: ClassVar[str] = "endpoint_config"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "AsyncInferenceConfig", "DataCaptureConfig", "EnableNetworkIsolation", "EndpointConfigName",
            "ExecutionRoleArn", "ExplainerConfig", "KmsKeyId", "ProductionVariants", "ShadowProductionVariants",
            "Tags", "VpcConfig",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "EndpointConfigName"
    not_in_schema: ClassVar[tuple[tuple[str, ...], ...]] = (("ProductionVariants", "AcceleratorPartitionLayouts"),)


class Endpoint(ResourceType):
    """AWS::SageMaker::Endpoint; a create or update waits until the endpoint is InService with its new configuration."""

    type: ClassVar[str] = "AWS::SageMaker::Endpoint"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "DeploymentConfig", "EndpointConfigName", "EndpointName", "ExcludeRetainedVariantProperties",
            "RetainAllVariantProperties", "RetainDeploymentConfig", "Tags",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "EndpointName"

    def create(self, request: Request) -> Outcome:
        """Make the endpoint and wait until it is in service."""
        name, client = request.name("EndpointName", limit=NAME_LIMIT), request.client("sagemaker")
        answer = call(
            client,
            "create_endpoint",
            EndpointName=name,
            EndpointConfigName=request.properties["EndpointConfigName"],
            DeploymentConfig=request.properties.get("DeploymentConfig"),
            Tags=request.tag_list() or None,
        )
        request.initiated(answer["EndpointArn"], EndpointName=name)
        _wait_in_service(request, name)
        return Outcome(physical_id=answer["EndpointArn"], attributes={"EndpointName": name})

    def update(self, request: Request) -> Outcome:
        """Give the endpoint another configuration; the endpoint keeps its name and ARN."""
        name, client = _name(request, "EndpointName"), request.client("sagemaker")
        # A rollback of the stack may find an update still in progress, and must not repeat SageMaker's own rollback.
        current = _settled(request, name)["EndpointConfigName"]
        if request.changed(*self.known - {"Tags"}) and current != request.properties["EndpointConfigName"]:
            call(
                client,
                "update_endpoint",
                EndpointName=name,
                **{key: request.properties.get(key) for key in self.known - {"EndpointName", "Tags"}},
            )
        _wait_in_service(request, name)
        retag(request, "sagemaker", TAGGING, ResourceArn=request.physical_id)
        return Outcome(physical_id=request.physical_id, attributes={"EndpointName": name})

    def delete(self, request: Request) -> None:
        """Delete the endpoint and wait for its end, since the deletion of its model and configuration comes next."""
        name, client = _name(request, "EndpointName"), request.client("sagemaker")
        deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
        if call_if_there(client, "describe_endpoint", EndpointName=name):
            _settled(request, name)
            call_if_there(client, "delete_endpoint", EndpointName=name)
        while call_if_there(client, "describe_endpoint", EndpointName=name):
            if time.monotonic() > deadline:
                raise ResourceFailure(f"Endpoint {name} is still there {ENDPOINT_TIMEOUT_SECONDS} s after its deletion")
            time.sleep(POLL_SECONDS)


def _name(request: Request, attribute: str) -> str:
    """Return the resource's name from an attribute, since the ARN has the name in lower case."""
    return str(request.attributes[attribute])


def _wait_in_service(request: Request, name: str) -> None:
    """Wait until the endpoint is in service with the requested configuration.

    Raises:
        ResourceFailure: the endpoint failed, went back to its old configuration, was deleted or took too long, or the
            operation was cancelled.
    """
    deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        answer = _described(request, "describe_endpoint", EndpointName=name)
        status, reason = answer["EndpointStatus"], answer.get("FailureReason", "no reason given")
        if status == "InService":
            if answer["EndpointConfigName"] != request.properties["EndpointConfigName"]:
                raise ResourceFailure(f"Endpoint {name} went back to its earlier configuration: {reason}")
            return
        if status in {"Failed", "UpdateRollbackFailed", "OutOfService"}:
            raise ResourceFailure(f"Endpoint {name} is {status}: {reason}")
        if request.cancelled.wait(POLL_SECONDS):
            raise ResourceFailure(CANCELLED)
    raise ResourceFailure(f"Endpoint {name} was not in service after {ENDPOINT_TIMEOUT_SECONDS} s")


def _settled(request: Request, name: str) -> Mapping[str, Any]:
    """Wait for the end of the endpoint's create or update, when SageMaker accepts changes; return its description."""
    deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
    while True:
        answer = _described(request, "describe_endpoint", EndpointName=name)
        if (status := answer["EndpointStatus"]) not in {"Creating", "Updating", "RollingBack"}:
            return answer
        if time.monotonic() > deadline:
            raise ResourceFailure(f"Endpoint {name} is {status} for {ENDPOINT_TIMEOUT_SECONDS} s")
        time.sleep(POLL_SECONDS)


def _described(request: Request, operation: str, **name: str) -> Mapping[str, Any]:
    """Call a describe operation for a resource whose status is awaited, and return the answer.

    Raises:
        ResourceFailure: the resource does not exist any more.
    """
    try:
        answer: Mapping[str, Any] = call(request.client("sagemaker"), operation, **name)
    except ClientError as error:
        if is_missing(error):
            kind = "Endpoint" if "EndpointName" in name else "Inference component"
            raise ResourceFailure(f"{kind} {', '.join(name.values())} was deleted while it was awaited") from None
        raise
    return answer


# The schema of AWS::SageMaker::InferenceComponent allows an update 490 minutes. SageMaker ends an update earlier, so
# this limit only ends a wait that hangs.
TIMEOUT_SECONDS: Final = 490 * 60
UNDER_WAY: Final = frozenset({"Creating", "Updating"})
CREATED_WITH: Final = ("EndpointName", "VariantName", "Specification", "RuntimeConfig")


class InferenceComponent(ResourceType):
    """AWS::SageMaker::InferenceComponent; a create or update waits until the requested copies are in service."""

    type: ClassVar[str] = "AWS::SageMaker::InferenceComponent"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "DeploymentConfig", "EndpointName", "InferenceComponentName", "RuntimeConfig", "Specification", "Tags",
            "VariantName",
        }
    )  # fmt: skip
    required: ClassVar[frozenset[str]] = frozenset({"Specification"})
    name_property: ClassVar[str | None] = "InferenceComponentName"
    fixed: ClassVar[Mapping[str, str]] = {
        name: f"{name} of an inference component cannot be changed: neither CloudFormation nor SageMaker replaces the "
        "component. Give the new one another logical id and name."
        for name in ("InferenceComponentName", "EndpointName", "VariantName")
    }
    volatile: ClassVar[frozenset[str] | None] = None
    not_in_schema: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("Specification", "ComputeResourceRequirements", "AcceleratorPartitionType"),
    )

    def create(self, request: Request) -> Outcome:
        """Make the inference component and wait until it is in service."""
        name = request.name("InferenceComponentName", limit=NAME_LIMIT)
        given = {key: request.properties.get(key) for key in CREATED_WITH}
        client, tags = request.client("sagemaker"), request.tag_list() or None
        answer = call(client, "create_inference_component", InferenceComponentName=name, Tags=tags, **given)
        request.initiated(answer["InferenceComponentArn"], InferenceComponentArn=answer["InferenceComponentArn"])
        return _outcome(_in_service(request, name))

    def update(self, request: Request) -> Outcome:
        """Set the component's specification and copy count, unless SageMaker already has the requested values."""
        name = _component_name(request)
        # A rollback of the stack may find an update still in progress, and must not repeat SageMaker's own rollback.
        described = _component_settled(request, name)
        if _differs(described, request):
            call(
                request.client("sagemaker"),
                "update_inference_component",
                InferenceComponentName=name,
                **{key: request.properties.get(key) for key in ("Specification", "RuntimeConfig", "DeploymentConfig")},
            )
            described = _in_service(request, name)
        retag(request, "sagemaker", TAGGING, ResourceArn=request.physical_id)
        return _outcome(described)

    def delete(self, request: Request) -> None:
        """Remove the component and wait until it is gone, since SageMaker deletes no endpoint that has components."""
        name, client = _component_name(request), request.client("sagemaker")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        there = call_if_there(client, "describe_inference_component", InferenceComponentName=name)
        if there and _component_settled(request, name)["InferenceComponentStatus"] != "Deleting":
            call_if_there(client, "delete_inference_component", InferenceComponentName=name)
        while call_if_there(client, "describe_inference_component", InferenceComponentName=name):
            if time.monotonic() > deadline:
                raise ResourceFailure(f"Inference component {name} is still there {TIMEOUT_SECONDS} s after its end")
            time.sleep(POLL_SECONDS)


def _component_name(request: Request) -> str:
    """Return the component's name from its ARN, in lower case; only InvokeEndpoint is case-sensitive.

    Source: AWS API reference, CreateEndpoint.
    """
    return request.physical_id.rpartition("/")[2]


def _differs(described: Mapping[str, Any], request: Request) -> bool:
    """Return True if the component must be updated; ignore a copy count that the template does not change."""
    wanted = (request.properties.get("RuntimeConfig") or {}).get("CopyCount")
    copies = described["RuntimeConfig"]["DesiredCopyCount"]
    if request.changed("RuntimeConfig") and wanted is not None and int(wanted) != copies:
        return True
    return bool(request.changed("Specification") and _specification(described) != request.properties["Specification"])


def _specification(described: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the Specification of DescribeInferenceComponent to the form that a request has."""
    specification: dict[str, Any] = dict(described["Specification"])
    if (container := specification.get("Container")) is not None:
        rest = {key: value for key, value in container.items() if key != "DeployedImage"}
        specification["Container"] = {"Image": container["DeployedImage"]["SpecifiedImage"], **rest}
    return specification


def _outcome(described: Mapping[str, Any]) -> Outcome:
    arn, runtime = described["InferenceComponentArn"], described["RuntimeConfig"]
    attributes = {
        "InferenceComponentArn": arn,
        "InferenceComponentStatus": described["InferenceComponentStatus"],
        "CreationTime": str(described["CreationTime"]),
        "LastModifiedTime": str(described["LastModifiedTime"]),
        "RuntimeConfig.CurrentCopyCount": runtime["CurrentCopyCount"],
        "RuntimeConfig.DesiredCopyCount": runtime["DesiredCopyCount"],
    }
    return Outcome(physical_id=arn, attributes=attributes)


def _in_service(request: Request, name: str) -> Mapping[str, Any]:
    """Wait until the inference component is in service as requested.

    Raises:
        ResourceFailure: the component failed, SageMaker rolled its update back, it was deleted or took too long, or
            the operation was cancelled.
    """
    described = _component_settled(request, name, cancellable=True)
    status, reason = described["InferenceComponentStatus"], described.get("FailureReason")
    if status != "InService":
        raise ResourceFailure(f"Inference component {name} is {status}: {reason or 'no reason given'}")
    if reason is not None:
        raise ResourceFailure(f"Inference component {name} went back to what it was: {reason}")
    return described


def _component_settled(request: Request, name: str, *, cancellable: bool = False) -> Mapping[str, Any]:
    """Wait for the end of the component's create or update, when SageMaker accepts changes; return its description."""
    deadline, operation = time.monotonic() + TIMEOUT_SECONDS, "describe_inference_component"
    while True:
        described = _described(request, operation, InferenceComponentName=name)
        if (status := described["InferenceComponentStatus"]) not in UNDER_WAY:
            return described
        if time.monotonic() > deadline:
            raise ResourceFailure(f"Inference component {name} is {status} for {TIMEOUT_SECONDS} s")
        if not cancellable:
            time.sleep(POLL_SECONDS)
        elif request.cancelled.wait(POLL_SECONDS):
            raise ResourceFailure(CANCELLED)
