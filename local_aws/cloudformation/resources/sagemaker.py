"""AWS::SageMaker::Model, AWS::SageMaker::EndpointConfig and AWS::SageMaker::Endpoint.

`Ref` of all three is the ARN, and the name an attribute (AWS: template reference of each type).
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
# SageMaker gives an endpoint an hour or more before it is Failed; the service decides, this only ends a hang.
ENDPOINT_TIMEOUT_SECONDS: Final = 3 * 3600
CANCELLED: Final = "Resource creation cancelled"


class Model(ResourceType):
    """A model; nothing of it can be changed, so every change makes a new one."""

    type: ClassVar[str] = "AWS::SageMaker::Model"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "Containers", "EnableNetworkIsolation", "ExecutionRoleArn", "InferenceExecutionConfig", "ModelName",
            "PrimaryContainer", "Tags", "VpcConfig",
        }
    )  # fmt: skip
    create_only: ClassVar[frozenset[str]] = known - {"Tags"}
    name_property: ClassVar[str | None] = "ModelName"

    def create(self, request: Request) -> Outcome:
        """Make the model."""
        name = request.name("ModelName", limit=NAME_LIMIT)
        arn = call(request.client("sagemaker"), "create_model", **_arguments(request, ModelName=name))["ModelArn"]
        return Outcome(physical_id=arn, attributes={"ModelName": name})

    def update(self, request: Request) -> Outcome:
        """Change the tags, which is all that can change in place."""
        retag(request, "sagemaker", TAGGING, ResourceArn=request.physical_id)
        return Outcome(physical_id=request.physical_id, attributes={"ModelName": _name(request, "ModelName")})

    def delete(self, request: Request) -> None:
        """Remove the model."""
        call_if_there(request.client("sagemaker"), "delete_model", ModelName=_name(request, "ModelName"))


class EndpointConfig(ResourceType):
    """An endpoint configuration, as unchangeable as a model."""

    type: ClassVar[str] = "AWS::SageMaker::EndpointConfig"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "AsyncInferenceConfig", "DataCaptureConfig", "EnableNetworkIsolation", "EndpointConfigName",
            "ExecutionRoleArn", "ExplainerConfig", "KmsKeyId", "ProductionVariants", "ShadowProductionVariants",
            "Tags", "VpcConfig",
        }
    )  # fmt: skip
    required: ClassVar[frozenset[str]] = frozenset({"ProductionVariants"})
    create_only: ClassVar[frozenset[str]] = known - {"Tags"}
    name_property: ClassVar[str | None] = "EndpointConfigName"

    def create(self, request: Request) -> Outcome:
        """Make the configuration."""
        name = request.name("EndpointConfigName", limit=NAME_LIMIT)
        arguments = _arguments(request, EndpointConfigName=name)
        arn = call(request.client("sagemaker"), "create_endpoint_config", **arguments)["EndpointConfigArn"]
        return Outcome(physical_id=arn, attributes={"EndpointConfigName": name})

    def update(self, request: Request) -> Outcome:
        """Change the tags."""
        retag(request, "sagemaker", TAGGING, ResourceArn=request.physical_id)
        return Outcome(
            physical_id=request.physical_id, attributes={"EndpointConfigName": _name(request, "EndpointConfigName")}
        )

    def delete(self, request: Request) -> None:
        """Remove the configuration."""
        call_if_there(
            request.client("sagemaker"),
            "delete_endpoint_config",
            EndpointConfigName=_name(request, "EndpointConfigName"),
        )


class Endpoint(ResourceType):
    """An endpoint; done when it is in service with the configuration that was asked for."""

    type: ClassVar[str] = "AWS::SageMaker::Endpoint"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "DeploymentConfig", "EndpointConfigName", "EndpointName", "ExcludeRetainedVariantProperties",
            "RetainAllVariantProperties", "RetainDeploymentConfig", "Tags",
        }
    )  # fmt: skip
    required: ClassVar[frozenset[str]] = frozenset({"EndpointConfigName"})
    create_only: ClassVar[frozenset[str]] = frozenset({"EndpointName"})
    name_property: ClassVar[str | None] = "EndpointName"

    def create(self, request: Request) -> Outcome:
        """Make the endpoint and wait until it serves."""
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
        """Move the endpoint to another configuration; the endpoint and its name stay."""
        name, client = _name(request, "EndpointName"), request.client("sagemaker")
        # A take-back may find an update still under way, and must not repeat what SageMaker rolled back by itself.
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
        """Remove the endpoint and wait until it is gone: its model and configuration go after it."""
        name, client = _name(request, "EndpointName"), request.client("sagemaker")
        deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
        if call_if_there(client, "describe_endpoint", EndpointName=name):
            _settled(request, name)
            call_if_there(client, "delete_endpoint", EndpointName=name)
        while call_if_there(client, "describe_endpoint", EndpointName=name):
            if time.monotonic() > deadline:
                raise ResourceFailure(f"Endpoint {name} is still there {ENDPOINT_TIMEOUT_SECONDS} s after its deletion")
            time.sleep(POLL_SECONDS)


def _arguments(request: Request, **name: str) -> dict[str, Any]:
    properties = {key: value for key, value in request.properties.items() if key != "Tags"}
    return {**properties, **name, "Tags": request.tag_list() or None}


def _name(request: Request, attribute: str) -> str:
    """The name; it cannot be read from the ARN, where SageMaker writes it in lower case."""
    return str(request.attributes[attribute])


def _wait_in_service(request: Request, name: str) -> None:
    """Wait for the endpoint.

    Raises:
        ResourceFailure: it failed, fell back to its old configuration, vanished or never came.
    """
    deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        answer = _describe(request, name)
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
    """The endpoint once it is neither being made nor updated: until then SageMaker refuses every change of it."""
    deadline = time.monotonic() + ENDPOINT_TIMEOUT_SECONDS
    while (answer := _describe(request, name))["EndpointStatus"] in {"Creating", "Updating", "RollingBack"}:
        if time.monotonic() > deadline:
            raise ResourceFailure(f"Endpoint {name} is {answer['EndpointStatus']} for {ENDPOINT_TIMEOUT_SECONDS} s")
        time.sleep(POLL_SECONDS)
    return answer


def _describe(request: Request, name: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = call(request.client("sagemaker"), "describe_endpoint", EndpointName=name)
    except ClientError as error:
        if is_missing(error):
            raise ResourceFailure(f"Endpoint {name} was deleted while it was awaited") from None
        raise
    return answer
