"""Copies of inference components and their instances, from zero to the maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.faults import faulted

from local_aws.kit.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

NO_ROOM = (
    "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference "
    "component."
)
NO_CAPACITY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if "
    "configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
)


def test_copies_and_instances_go_to_zero_and_come_back(cloud: Cloud, wait: Callable[..., None]) -> None:
    """At zero copies no instance runs, and calls are counted and rejected until a copy serves again."""
    cloud.serve_component()
    assert cloud.scale_component(0)["RuntimeConfig"] == {"DesiredCopyCount": 0, "CurrentCopyCount": 0}
    assert cloud.instances() == []
    assert cloud.status()["ProductionVariants"][0]["CurrentInstanceCount"] == 0
    assert cloud.factory.running == []
    for _ in range(3):
        with faulted("ValidationError", 400, NO_CAPACITY):
            cloud.call_component()
    wait(lambda: cloud.statistic("NoCapacityInvocationFailures", "Sum", InferenceComponentName="c") == 3)
    assert cloud.statistic("NoCapacityInvocationFailures", "Maximum", InferenceComponentName="c") == 1
    assert cloud.scale_component(1)["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    assert len(cloud.instances()) == 1
    assert cloud.call_component("nli")["answer"] == "nli"


class HandMoved:
    """The source of a clock that only a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.time


def test_an_instance_without_copies_is_kept_for_a_while(
    make_cloud: Callable[..., Cloud], wait: Callable[..., None]
) -> None:
    """An instance without copies stays for twelve minutes, and a new copy uses it."""
    machine = HandMoved()
    cloud = make_cloud(clock=Clock(machine=machine), instance_idle_s=720)
    cloud.serve_component()
    (first,) = [instance["id"] for instance in cloud.instances()]
    cloud.scale_component(0)
    machine.time += 719
    cloud.scale_component(1)
    assert [instance["id"] for instance in cloud.instances()] == [first]
    machine.time += 719
    cloud.scale_component(0)
    assert [instance["id"] for instance in cloud.instances()] == [first]
    machine.time += 720
    wait(lambda: cloud.instances() == [])


def test_an_idle_copy_has_a_value_of_calls_a_minute(
    make_cloud: Callable[..., Cloud], wait: Callable[..., None]
) -> None:
    """An idle copy reports zero calls per minute, and at zero copies no value is reported."""
    machine = HandMoved()
    cloud = make_cloud(clock=Clock(machine=machine))
    cloud.serve_component()

    def values() -> float:
        return cloud.statistic("InvocationsPerCopy", "SampleCount", InferenceComponentName="c")

    wait(lambda: values() == 1)
    machine.time += 60
    wait(lambda: values() == 2)
    assert cloud.statistic("InvocationsPerCopy", "Sum", InferenceComponentName="c") == 0
    cloud.scale_component(0)
    for _ in range(2):
        machine.time += 60
        with pytest.raises(cloud.runtime.exceptions.ValidationError):
            cloud.call_component()
    # What is sent after it tells that nothing was there to be sent before.
    wait(lambda: cloud.statistic("NoCapacityInvocationFailures", "Sum", InferenceComponentName="c") == 2)
    assert values() == 2


def test_a_component_without_a_copy_yet_has_no_capacity(cloud: Cloud) -> None:
    """While the first copy starts, a call is refused as at zero."""
    cloud.deploy_components()
    cloud.factory.start_gate.shut()
    cloud.create_component()
    with faulted("ValidationError", 400, "no capacity"):
        cloud.call_component()
    cloud.factory.start_gate.open()
    cloud.wait_component("InService")


def test_instances_follow_the_copies(cloud: Cloud) -> None:
    """The number of instances follows the copies up to the maximum, because each copy takes a whole GPU."""
    cloud.serve_component(maximum=3)
    assert cloud.scale_component(3)["RuntimeConfig"]["CurrentCopyCount"] == 3
    assert [len(instance["copies"]) for instance in cloud.instances()] == [1, 1, 1]
    assert {copy["component"] for instance in cloud.instances() for copy in instance["copies"]} == {"c"}
    cloud.scale_component(1)
    assert len(cloud.instances()) == len(cloud.factory.running) == 1


def test_a_minimum_of_instances_stays(cloud: Cloud) -> None:
    """With a minimum of one the last instance stays without copies."""
    cloud.serve_component(minimum=1)
    cloud.scale_component(0)
    assert [instance["copies"] for instance in cloud.instances()] == [[]]


def test_more_copies_than_instances_can_hold_are_refused(cloud: Cloud) -> None:
    """More copies than instances can hold are reported with the reason, and existing ones serve."""
    cloud.serve_component()
    described = cloud.scale_component(3)
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 3, "CurrentCopyCount": 1}
    assert described["FailureReason"] == NO_ROOM
    assert cloud.call_component("mini")["answer"] == "mini"
    assert "FailureReason" not in cloud.scale_component(2)


def test_the_accounts_quota_bounds_the_instances(make_cloud: Callable[..., Cloud]) -> None:
    """More instances than the quota are rejected with SageMaker's text, and existing ones serve."""
    cloud = make_cloud(instance_quotas={"ml.g5.xlarge": 1})
    cloud.serve_component()
    reason = cloud.scale_component(2)["FailureReason"]
    assert "service limit 'ml.g5.xlarge for endpoint usage' is 1 Instances, with current utilization of 1" in reason
    assert cloud.call_component()["answer"] == "mini"


def test_without_managed_scaling_the_instances_are_fixed(cloud: Cloud) -> None:
    """A component that finds no free instance fails; an instance without copies stays."""
    cloud.deploy_components(ManagedInstanceScaling=None)
    cloud.create_component("a")
    cloud.wait_component("InService", "a")
    cloud.create_component("b")
    assert cloud.wait_component("Failed", "b")["FailureReason"] == NO_ROOM
    cloud.scale_component(0, "a")
    assert len(cloud.instances()) == 1
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 2}
    with faulted("ValidationException", 400, "DesiredInstanceCount of variant AllTraffic"):
        cloud.sagemaker.update_endpoint_weights_and_capacities(EndpointName="e", DesiredWeightsAndCapacities=[change])


def test_components_share_an_instance_that_has_room(cloud: Cloud) -> None:
    """Copies of two components share an instance with four GPUs and answer their own calls."""
    cloud.deploy_components(InstanceType="ml.g5.12xlarge")
    for name in "ab":
        cloud.create_component(name, copies=2)
        cloud.wait_component("InService", name)
    (instance,) = cloud.instances()
    assert sorted(copy["component"] for copy in instance["copies"]) == ["a", "a", "b", "b"]
    # The models of a copy have the memory of its own accelerator, not of all four.
    assert {container.options["memory_mb"] for container in cloud.factory.started} == {22888}
    cloud.scale_component(0, "a")
    with faulted("ValidationError", 400, "no capacity"):
        cloud.call_component(name="a")
    assert cloud.call_component(name="b")["answer"] == "mini"


def test_a_dead_copy_is_started_again(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A copy whose container dies is restarted with the same archive."""
    cloud.serve_component()
    cloud.run(cloud.factory.started[0].die())
    wait(lambda: [copy["restarts"] for copy in cloud.instances()[0]["copies"]] == [1])
    assert cloud.call_component("nli")["answer"] == "nli"


def test_shutdown_ends_copies_in_every_state(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A shutdown ends copies in service and cancels starting ones."""
    cloud.serve_component(maximum=3)
    cloud.factory.start_gate.shut()
    cloud.sagemaker.update_inference_component_runtime_config(
        InferenceComponentName="c", DesiredRuntimeConfig={"CopyCount": 3}
    )
    wait(lambda: cloud.factory.starting == 2)
    cloud.run(cloud.service.stop_endpoints())
    assert cloud.factory.running == []
    assert cloud.factory.given_up == 2
