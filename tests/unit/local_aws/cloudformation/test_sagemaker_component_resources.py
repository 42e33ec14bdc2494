"""AWS::SageMaker::InferenceComponent against a client that plays the service."""

from __future__ import annotations

import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Request
from local_aws.cloudformation.resources.sagemaker import InferenceComponent

ARN = "arn:aws:sagemaker:us-east-1:123456789012:inference-component/lmi"
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}


def specification(model: str) -> dict[str, Any]:
    """Return the specification of an inference component with one model."""
    return {"ModelName": model, "ComputeResourceRequirements": NEEDS}


def properties(model: str = "new", **more: Any) -> dict[str, Any]:
    """The template's properties of component `Lmi`."""
    return {
        "InferenceComponentName": "Lmi",
        "EndpointName": "e",
        "VariantName": "v",
        "Specification": specification(model),
        "RuntimeConfig": {"CopyCount": 1},
        **more,
    }


class Service:
    """Answers DescribeInferenceComponent from a list of (status, model, reason); the last one repeats."""

    def __init__(self, *states: tuple[str, str, str | None], copies: int = 1) -> None:
        self.states = list(states)
        self.copies = copies
        self.calls: list[tuple[str, dict[str, Any]]] = []
        real: Any = boto3.client("sagemaker", region_name="us-east-1")
        self.meta = real.meta

    @property
    def names(self) -> list[str]:
        """The operations that were called, but for looking."""
        return [name for name, _ in self.calls]

    def get(self, service: str, region: str) -> Service:
        """The client itself; it is its own factory."""
        assert (service, region) == ("sagemaker", "us-east-1")
        return self

    def describe_inference_component(self, **_: str) -> dict[str, Any]:
        """The next state."""
        status, model, reason = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if status == "Gone":
            fault = {"Error": {"Code": "ValidationException", "Message": "Could not find inference component"}}
            raise ClientError(fault, "x")  # type: ignore[arg-type]  # a fault needs no more
        return {
            "InferenceComponentArn": ARN,
            "InferenceComponentStatus": status,
            "Specification": specification(model),
            "RuntimeConfig": {"DesiredCopyCount": self.copies, "CurrentCopyCount": self.copies},
            "CreationTime": "then",
            "LastModifiedTime": "now",
            **({} if reason is None else {"FailureReason": reason}),
        }

    def __getattr__(self, name: str) -> Any:
        """Record any other call."""

        def call(**arguments: Any) -> dict[str, Any]:
            self.calls.append((name, arguments))
            return {"InferenceComponentArn": ARN, "Tags": []}

        return call


def request(service: Service, **fields: Any) -> Request:
    """A call for the component, from model `old` to model `new`."""
    clients: Any = service
    known: dict[str, Any] = {
        "type": InferenceComponent.type,
        "logical_id": "C",
        "stack_name": "s",
        "stack_arn": "a",
        "region": "us-east-1",
        "properties": properties(),
        "old_properties": properties("old"),
        "physical_id": ARN,
        "tags": {},
        "clients": clients,
    }
    return Request(**{**known, **fields})


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_aws.cloudformation.resources.sagemaker.POLL_SECONDS", 0.001)


def test_creation_waits_until_it_serves() -> None:
    """The creation of a component waits for InService; Ref is its ARN."""
    service = Service(("Creating", "new", None), ("InService", "new", None))
    outcome = InferenceComponent().create(request(service))
    assert outcome.physical_id == outcome.attributes["InferenceComponentArn"] == ARN
    assert outcome.attributes["InferenceComponentStatus"] == "InService"
    assert outcome.attributes["RuntimeConfig.CurrentCopyCount"] == 1
    ((name, arguments),) = service.calls
    assert (name, arguments["InferenceComponentName"], arguments["EndpointName"]) == (
        "create_inference_component",
        "Lmi",
        "e",
    )


def test_numbers_as_text_are_taken() -> None:
    """A number as text in a template is sent as a number."""
    service = Service(("InService", "new", None))
    InferenceComponent().create(request(service, properties=properties(RuntimeConfig={"CopyCount": "2"})))
    assert service.calls[0][1]["RuntimeConfig"] == {"CopyCount": 2}


def test_a_failed_component_gives_its_reason_and_its_id() -> None:
    """A failed component fails its resource with the FailureReason, and the rollback deletes it by its id."""
    seen: list[str] = []
    service = Service(("Creating", "new", None), ("Failed", "new", "There is not enough hardware"))
    with pytest.raises(ResourceFailure, match="There is not enough hardware"):
        InferenceComponent().create(request(service, initiated=lambda physical_id, **_: seen.append(physical_id)))
    assert seen == [ARN]


def test_a_changed_specification_is_an_update_in_place() -> None:
    """A changed specification is one UpdateInferenceComponent call."""
    service = Service(("InService", "old", None), ("Updating", "old", None), ("InService", "new", None))
    policy = {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}
    wanted = properties(DeploymentConfig={"RollingUpdatePolicy": policy})
    assert InferenceComponent().update(request(service, properties=wanted)).physical_id == ARN
    name, arguments = service.calls[0]
    assert name == "update_inference_component"
    assert arguments["InferenceComponentName"] == "lmi"
    assert arguments["Specification"] == specification("new")
    assert arguments["RuntimeConfig"] == {"CopyCount": 1}
    assert arguments["DeploymentConfig"] == {"RollingUpdatePolicy": policy}
    assert not InferenceComponent().schema.replaces(("Specification",), {}, {"ModelName": "m"})


def test_an_update_that_sagemaker_took_back_fails() -> None:
    """A component in service with a failure reason is a failed update."""
    service = Service(("InService", "old", None), ("Updating", "old", None), ("InService", "old", "no room"))
    with pytest.raises(ResourceFailure, match="no room"):
        InferenceComponent().update(request(service))


def test_what_is_as_asked_is_not_sent_again() -> None:
    """A rollback waits for a running update, and sends none if SageMaker has rolled back itself."""
    service = Service(("Updating", "new", None), ("InService", "new", "an earlier reason"))
    InferenceComponent().update(request(service))
    assert "update_inference_component" not in service.names


def test_copies_that_scaling_has_set_are_left_alone() -> None:
    """An update sets the copies only if RuntimeConfig changed, so changed tags do not wake a component."""
    service = Service(("InService", "new", None), copies=0)
    InferenceComponent().update(request(service, old_properties=properties(Tags=[{"Key": "k", "Value": "v"}])))
    assert "update_inference_component" not in service.names
    grown = properties(RuntimeConfig={"CopyCount": 2})
    InferenceComponent().update(request(service, properties=grown, old_properties=properties()))
    assert "update_inference_component" in service.names


@pytest.mark.parametrize("fixed", ["InferenceComponentName", "EndpointName", "VariantName"])
def test_what_cannot_change_fails_by_name(fixed: str) -> None:
    """A renamed or moved component fails the update with the property, and no replacement is declared."""
    with pytest.raises(ResourceFailure, match=fixed):
        InferenceComponent().check_fixed(properties(), properties(**{fixed: "other"}))


def test_a_wait_ends_when_the_operation_is_taken_back() -> None:
    """The wait for a component ends when another resource fails."""
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ResourceFailure, match="cancelled"):
        InferenceComponent().create(request(Service(("Creating", "new", None)), cancelled=cancelled))


def test_deletion_waits_until_it_is_gone() -> None:
    """The deletion of a component waits for its end, before its endpoint is deleted."""
    service = Service(
        ("Updating", "new", None), ("Updating", "new", None), ("InService", "new", None),
        ("Deleting", "new", None), ("Gone", "", None),
    )  # fmt: skip
    InferenceComponent().delete(request(service))
    assert service.names == ["delete_inference_component"]
    gone = Service(("Gone", "", None))
    InferenceComponent().delete(request(gone))
    assert gone.calls == []


def test_a_component_that_vanishes_is_a_failure() -> None:
    """A component that somebody deletes during the wait fails its resource."""
    with pytest.raises(ResourceFailure, match="Lmi was deleted"):
        InferenceComponent().create(request(Service(("Creating", "new", None), ("Gone", "", None))))
