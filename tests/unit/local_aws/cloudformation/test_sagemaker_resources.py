"""AWS::SageMaker::Endpoint against a client that plays the service."""

from __future__ import annotations

import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Request
from local_aws.cloudformation.resources.sagemaker import Endpoint, Model

ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/lmi"


class Service:
    """Answers DescribeEndpoint from a list of states; the last one repeats."""

    def __init__(self, *states: tuple[str, str, str]) -> None:
        self.states = list(states)
        self.calls: list[str] = []
        real: Any = boto3.client("sagemaker", region_name="us-east-1")
        self.meta = real.meta

    def get(self, service: str, region: str) -> Service:
        """The client itself; it is its own factory."""
        assert (service, region) == ("sagemaker", "us-east-1")
        return self

    def describe_endpoint(self, **_: str) -> dict[str, str]:
        """The next state: status, configuration, reason."""
        status, config, reason = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if status == "Gone":
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "Could not find endpoint"}}, "x")
        return {"EndpointStatus": status, "EndpointConfigName": config, "FailureReason": reason}

    def __getattr__(self, name: str) -> Any:
        """Record any other call."""

        def call(**arguments: Any) -> dict[str, Any]:
            del arguments
            self.calls.append(name)
            return {"EndpointArn": ARN, "ModelArn": "arn:model", "Tags": []}

        return call


def request(service: Service, **fields: Any) -> Request:
    """A call for the endpoint `lmi` with the configuration `new`."""
    clients: Any = service
    known: dict[str, Any] = {
        "type": "AWS::SageMaker::Endpoint",
        "logical_id": "E",
        "stack_name": "s",
        "stack_arn": "a",
        "region": "us-east-1",
        "properties": {"EndpointName": "lmi", "EndpointConfigName": "new"},
        "old_properties": {"EndpointName": "lmi", "EndpointConfigName": "old"},
        "attributes": {"EndpointName": "lmi"},
        "physical_id": ARN,
        "tags": {},
        "clients": clients,
    }
    return Request(**{**known, **fields})


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_aws.cloudformation.resources.sagemaker.POLL_SECONDS", 0.001)


def test_creation_waits_until_it_serves() -> None:
    """The creation of an endpoint waits for InService."""
    outcome = Endpoint().create(request(Service(("Creating", "new", ""), ("InService", "new", ""))))
    assert (outcome.physical_id, outcome.attributes) == (ARN, {"EndpointName": "lmi"})


def test_failed_endpoint_gives_its_reason_and_its_id() -> None:
    """A failed endpoint fails its resource with the FailureReason, and the rollback deletes it by its id."""
    seen: list[str] = []
    service = Service(("Creating", "new", ""), ("Failed", "new", "the image has no GPU driver"))
    with pytest.raises(ResourceFailure, match="the image has no GPU driver"):
        Endpoint().create(request(service, initiated=lambda physical_id, **_: seen.append(physical_id)))
    assert seen == [ARN]


def test_update_that_sagemaker_took_back_fails() -> None:
    """An endpoint in service with the old configuration is a failed update."""
    service = Service(("InService", "old", ""), ("Updating", "old", ""), ("InService", "old", "unhealthy"))
    with pytest.raises(ResourceFailure, match="unhealthy"):
        Endpoint().update(request(service))
    assert service.calls == ["update_endpoint"]


def test_take_back_waits_for_a_running_update_and_sends_none_when_nothing_is_to_do() -> None:
    """A rollback waits for a running update, and sends none if SageMaker has rolled back itself."""
    service = Service(("Updating", "new", ""), ("InService", "new", ""))
    Endpoint().update(request(service))
    assert "update_endpoint" not in service.calls


def test_wait_ends_when_the_operation_is_taken_back() -> None:
    """The wait for an endpoint ends when another resource fails."""
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ResourceFailure, match="cancelled"):
        Endpoint().create(request(Service(("Creating", "new", "")), cancelled=cancelled))


def test_deletion_waits_until_it_is_gone() -> None:
    """The deletion of an endpoint waits for its end, because its configuration and model are deleted after it."""
    service = Service(("InService", "new", ""), ("InService", "new", ""), ("Deleting", "new", ""), ("Gone", "", ""))
    Endpoint().delete(request(service))
    assert service.calls == ["delete_endpoint"]
    gone = Service(("Gone", "", ""))
    Endpoint().delete(request(gone))
    assert gone.calls == []


def test_model_is_replaced_by_any_change_but_tags() -> None:
    """Each change of a SageMaker model except tags replaces the model."""
    model = Model()
    assert model.schema.replaces(("PrimaryContainer", "Image"), "a", "b")
    assert not model.schema.replaces(("Tags",), [], [{}])
    assert model.create(request(Service(("x", "", "")), properties={"ModelName": "m"})).attributes == {"ModelName": "m"}
