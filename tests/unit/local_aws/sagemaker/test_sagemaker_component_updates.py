"""Updates of components and their endpoints: old copies serve until new ones do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fakes.faults import faulted

if TYPE_CHECKING:
    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

NO_ROOM = (
    "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference "
    "component."
)


def test_an_update_rolls_the_component(cloud: Cloud) -> None:
    """An update starts new copies beside the old ones, which end after their running calls."""
    cloud.serve_component()
    cloud.put_model("new.tar.gz", **{"mini/answer": "new", "nli/answer": "nli"})
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/new.tar.gz")
    stop, faults = threading.Event(), list[Any]()

    def call_on() -> None:
        while not stop.is_set():
            try:
                cloud.call_component()
            except ClientError as fault:
                faults.append(fault)

    caller = threading.Thread(target=call_on)
    caller.start()
    cloud.sagemaker.update_inference_component(InferenceComponentName="c", Specification={"ModelName": "new"})
    described = cloud.wait_component("InService")
    stop.set()
    caller.join()
    assert faults == []
    assert described["Specification"]["ModelName"] == "new"
    assert described["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 1024
    assert cloud.call_component()["answer"] == "new"
    assert len(cloud.instances()) == len(cloud.factory.running) == 1


def test_a_rolling_update_replaces_batch_by_batch(cloud: Cloud) -> None:
    """With batches of one, one spare instance is enough to update three copies."""
    cloud.serve_component(copies=3, maximum=4)
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    policy = {"MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 34}, "WaitIntervalInSeconds": 0}
    update = {"InferenceComponentName": "c", "Specification": {"ModelName": "new"}}
    deployment = {"RollingUpdatePolicy": policy}
    cloud.sagemaker.update_inference_component(**update, DeploymentConfig=deployment, RuntimeConfig={"CopyCount": 2})
    described = cloud.wait_component("InService")
    assert described["LastDeploymentConfig"] == deployment
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}
    assert "FailureReason" not in described


@pytest.mark.parametrize(
    ("copies", "kind", "value"),
    [
        (1, "COPY_COUNT", 1),
        (0, "COPY_COUNT", 1),
        (3, "COPY_COUNT", 2),
        (2, "CAPACITY_PERCENT", 51),
        (2, "CAPACITY_PERCENT", 4),
    ],
)
def test_a_batch_outside_of_the_documented_range_is_refused(cloud: Cloud, copies: int, kind: str, value: int) -> None:
    """A batch outside 5 to 50 % of the copies is rejected and changes nothing."""
    cloud.serve_component(copies=max(copies, 1), maximum=4)
    if not copies:
        cloud.scale_component(0)
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    policy = {"MaximumBatchSize": {"Type": kind, "Value": value}, "WaitIntervalInSeconds": 0}
    with faulted("ValidationException", 400, "between 5% and 50%"):
        cloud.sagemaker.update_inference_component(
            InferenceComponentName="c",
            Specification={"ModelName": "new"},
            DeploymentConfig={"RollingUpdatePolicy": policy},
        )
    assert cloud.wait_component("InService")["Specification"]["ModelName"] == "model"


def test_an_update_without_room_for_both_is_taken_back(cloud: Cloud) -> None:
    """An update is rolled back with the reason if old and new copies do not fit side by side."""
    cloud.serve_component(maximum=1)
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    cloud.sagemaker.update_inference_component(InferenceComponentName="c", Specification={"ModelName": "new"})
    described = cloud.wait_component("InService")
    assert described["FailureReason"] == NO_ROOM
    assert described["Specification"]["ModelName"] == "model"
    assert cloud.call_component()["answer"] == "mini"


def test_an_update_that_fails_half_way_is_taken_back(cloud: Cloud) -> None:
    """If the second batch of new copies fails, the copies of the first batch are replaced by the old ones."""
    cloud.serve_component(copies=2, maximum=3)
    cloud.put_model("new.tar.gz", **{"mini/answer": "new"})
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/new.tar.gz")
    cloud.factory.fail_starts = [4]
    policy = {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}
    cloud.sagemaker.update_inference_component(
        InferenceComponentName="c",
        Specification={"ModelName": "new"},
        DeploymentConfig={"RollingUpdatePolicy": policy},
    )
    described = cloud.wait_component("InService")
    assert "did not pass the ping health check" in described["FailureReason"]
    assert {cloud.call_component()["answer"] for _ in range(4)} == {"mini"}
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}


def test_an_update_at_zero_copies_changes_what_will_start(cloud: Cloud) -> None:
    """An update without copies replaces none, and the next copy runs the new model."""
    cloud.serve_component(maximum=1)
    cloud.scale_component(0)
    cloud.put_model("new.tar.gz", **{"mini/answer": "new"})
    cloud.create_model("new", Mode=None, ModelDataUrl="s3://models/p/new.tar.gz")
    cloud.sagemaker.update_inference_component(InferenceComponentName="c", Specification={"ModelName": "new"})
    cloud.wait_component("InService")
    cloud.scale_component(1)
    assert cloud.call_component()["answer"] == "new"


def test_an_endpoint_update_takes_the_copies_along(cloud: Cloud) -> None:
    """An endpoint update moves the copies to new instances; the kind of endpoint cannot change."""
    cloud.serve_component()
    before = {instance["id"] for instance in cloud.instances()}
    cloud.create_component_config("config-2", maximum=4)
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    assert cloud.wait_status("InService")["EndpointConfigName"] == "config-2"
    assert {instance["id"] for instance in cloud.instances()}.isdisjoint(before)
    assert cloud.call_component()["answer"] == "mini"
    assert len(cloud.factory.running) == 1
    cloud.create_model("many")
    cloud.create_config("models", "many")
    with faulted("ValidationException", 400, "endpoint/e"):
        cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="models")
    cloud.create_component_config("renamed", VariantName="Other")
    with faulted("ValidationException", 400, "AllTraffic"):
        cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="renamed")


def test_an_endpoint_update_without_room_rolls_back(cloud: Cloud) -> None:
    """An endpoint update whose instances have no room for the copies is rolled back."""
    cloud.serve_component(copies=2)
    cloud.create_component_config("config-2", maximum=1)
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="config-2")
    status = cloud.wait_status("InService")
    assert (status["EndpointConfigName"], status["FailureReason"]) == ("config", NO_ROOM)
    assert len(cloud.factory.running) == 2
