"""The operations of inference components, their rules and statuses, with boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

ARN = "arn:aws:sagemaker:us-east-1:123456789012"
NO_ROOM = "There is not enough hardware resources on the instances for this endpoint to create a copy"


def test_a_component_is_described_as_it_was_created(cloud: Cloud) -> None:
    """DescribeInferenceComponent gives back the specification, the counts and the endpoint."""
    cloud.deploy_components()
    arn = cloud.create_component("All-Models", StartupParameters={"ContainerStartupHealthCheckTimeoutInSeconds": 120})
    component = cloud.wait_component("InService", "All-Models")
    assert arn == component["InferenceComponentArn"] == f"{ARN}:inference-component/all-models"
    assert (component["EndpointName"], component["VariantName"]) == ("e", "AllTraffic")
    assert component["EndpointArn"] == f"{ARN}:endpoint/e"
    assert component["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    assert component["Specification"] == {
        "ModelName": "model",
        "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 120},
        "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1},
    }
    assert cloud.factory.started[0].options["start_timeout_s"] == 120


def test_an_endpoint_for_components_is_described_with_its_scaling(make_cloud: Callable[..., Cloud]) -> None:
    """An endpoint for components has no container; its description has instances and bounds."""
    cloud = make_cloud(instance_idle_s=3600)
    cloud.deploy_components()
    (variant,) = cloud.status()["ProductionVariants"]
    assert variant == {
        "VariantName": "AllTraffic",
        "CurrentWeight": 1.0,
        "DesiredWeight": 1.0,
        "CurrentInstanceCount": 1,
        "DesiredInstanceCount": 1,
        "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2},
    }
    assert cloud.factory.started == []


def test_statuses_are_the_services(cloud: Cloud, wait: Callable[..., None]) -> None:
    """Creating, InService, Updating and Deleting are visible, each with the refusal of further changes meanwhile."""
    cloud.deploy_components()
    runtime = {"InferenceComponentName": "c", "DesiredRuntimeConfig": {"CopyCount": 2}}

    def delete() -> None:
        cloud.sagemaker.delete_inference_component(InferenceComponentName="c")

    cloud.transitions.shut()
    cloud.create_component()
    assert cloud.component()["InferenceComponentStatus"] == "Creating"
    with faulted("ValidationException", 400, "while it is in state CREATE_IN_PROGRESS"):
        delete()
    cloud.transitions.open()
    cloud.wait_component("InService")
    cloud.transitions.shut()
    cloud.sagemaker.update_inference_component_runtime_config(**runtime)
    described = cloud.component()
    assert described["InferenceComponentStatus"] == "Updating"
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 1}
    with faulted("ValidationException", 400, "UPDATE_RC_IN_PROGRESS"):
        delete()
    cloud.transitions.open()
    cloud.wait_component("InService")
    cloud.transitions.shut()
    delete()
    assert cloud.component()["InferenceComponentStatus"] == "Deleting"
    with faulted("ValidationException", 400, "DELETE_IN_PROGRESS"):
        delete()
    cloud.transitions.open()
    wait(lambda: not cloud.sagemaker.list_inference_components()["InferenceComponents"])
    with faulted("ValidationException", 400, f'Could not find inference component "{ARN}:inference-component/c".'):
        cloud.component()


def needs(**more: float | None) -> dict[str, Any]:
    """Return the requirements of a specification: 1,024 MiB and others."""
    members = {"MinMemoryRequiredInMb": 1024, **more}
    return {"ComputeResourceRequirements": {name: value for name, value in members.items() if value is not None}}


@pytest.mark.parametrize(
    ("specification", "about"),
    [
        ({"ComputeResourceRequirements": None}, "ComputeResourceRequirements"),
        (needs(NumberOfAcceleratorDevicesRequired=1, MinMemoryRequiredInMb=None), "minMemoryRequiredInMb"),
        (needs(MinMemoryRequiredInMb=4096), NO_ROOM),
        (needs(NumberOfAcceleratorDevicesRequired=2), NO_ROOM),
        (needs(NumberOfCpuCoresRequired=5), NO_ROOM),
        (needs(NumberOfAcceleratorDevicesRequired=1.5), "NumberOfAcceleratorDevicesRequired"),
        (needs(NumberOfAcceleratorDevicesRequired=0.5), "numberOfAcceleratorDevicesRequired"),
        (needs(MaxMemoryRequiredInMb=512), "MaxMemoryRequiredInMb"),
        ({"ModelName": "gone"}, f"{ARN}:model/gone"),
        ({"ModelName": None}, "ModelName"),
        ({"Container": {"Image": "i"}}, "Container"),
        ({"ModelName": None, "Container": {"Image": "i", "Environment": {f"K{n}": "v" for n in range(17)}}}, "17"),
        ({"ModelName": None, "Container": {"Image": "i"}}, "image i "),
        ({"BaseInferenceComponentName": "b"}, "BaseInferenceComponentName"),
        ({"StartupParameters": {"ModelDataDownloadTimeoutInSeconds": 59}}, "modelDataDownloadTimeoutInSeconds"),
    ],
)
def test_a_specification_that_breaks_a_rule_is_refused(cloud: Cloud, specification: dict[str, Any], about: str) -> None:
    """A component whose specification breaks a rule is rejected with the member, and is not created."""
    cloud.deploy_components()
    with faulted("ValidationException", 400, about):
        cloud.create_component(**specification)
    assert cloud.sagemaker.list_inference_components()["InferenceComponents"] == []


def test_a_component_is_not_created_without_copies(cloud: Cloud) -> None:
    """A component cannot be created with zero copies, and has one by default."""
    cloud.deploy_components()
    with faulted("ValidationException", 400, "Inference components copy count an integer larger than 0"):
        cloud.create_component(copies=0)
    cloud.create_component(copies=None)
    assert cloud.wait_component("InService")["RuntimeConfig"]["CurrentCopyCount"] == 1


def test_only_endpoints_for_components_take_them(cloud: Cloud) -> None:
    """An endpoint with a model rejects components, and a multi-model container cannot be one."""
    cloud.deploy()
    text = (
        "Inference Components are not supported in this Endpoint. Please make sure this endpoint can deploy inference "
        "components."
    )
    with faulted("ValidationException", 400, text):
        cloud.create_component()
    cloud.create_component_config("components")
    cloud.sagemaker.create_endpoint(EndpointName="e2", EndpointConfigName="components")
    cloud.wait_status("InService", "e2")
    needs = {"MinMemoryRequiredInMb": 1024}
    create = {
        "InferenceComponentName": "c",
        "EndpointName": "e2",
        "Specification": {"ModelName": "model", "ComputeResourceRequirements": needs},
    }
    with faulted("ValidationException", 400, "Mode MultiModel"):
        cloud.sagemaker.create_inference_component(**create)


def test_names_and_references_are_checked(cloud: Cloud) -> None:
    """A component's name must be unique, and its endpoint and variant in service."""
    cloud.deploy_components()
    cloud.create_component()
    cloud.wait_component("InService")
    with faulted("ValidationException", 400, f"{ARN}:inference-component/c"):
        cloud.create_component()
    create = cloud.sagemaker.create_inference_component
    needs = {"MinMemoryRequiredInMb": 1024}
    rest = {"Specification": {"ModelName": "model", "ComputeResourceRequirements": needs}}
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"EndpointName": "gone", **rest}, f"{ARN}:endpoint/gone"),
        ({"EndpointName": "e", "VariantName": "gone", **rest}, "Variant gone"),
        ({"EndpointName": "e"}, "Specification"),
    ]
    for request, about in refusals:
        with faulted("ValidationException", 400, about):
            create(InferenceComponentName="d", **request)


def test_a_component_needs_its_endpoint_in_service(cloud: Cloud) -> None:
    """While the endpoint is being created no component can be."""
    cloud.transitions.shut()
    cloud.put_model("all.tar.gz", answer="a")
    cloud.create_model(Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    cloud.create_component_config()
    cloud.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="config")
    with faulted("ValidationException", 400, "Creating"):
        cloud.create_component()


def test_a_component_can_bring_its_own_container(cloud: Cloud) -> None:
    """A component can have image, archive and environment instead of a model."""
    cloud.deploy_components()
    image = cloud.sagemaker.describe_model(ModelName="model")["PrimaryContainer"]["Image"]
    container = {"Image": image, "ArtifactUrl": "s3://models/p/all.tar.gz", "Environment": {"K": "v"}}
    cloud.create_component(ModelName=None, Container=container)
    described = cloud.wait_component("InService")["Specification"]["Container"]
    assert described["ArtifactUrl"] == "s3://models/p/all.tar.gz"
    assert described["Environment"] == {"K": "v"}
    assert cloud.factory.started[0].options["environment"].items() >= {"K": "v"}.items()
    assert described["DeployedImage"]["ResolvedImage"] == image
    cloud.create_model("other", Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    cloud.sagemaker.update_inference_component(InferenceComponentName="c", Specification={"ModelName": "other"})
    updated = cloud.wait_component("InService")["Specification"]
    assert updated["ModelName"] == "other"
    assert "Container" not in updated


def test_a_container_that_does_not_start_fails_the_component(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A component whose container does not start is Failed, and frees its place when deleted."""
    cloud.deploy_components()
    cloud.factory.failing = True
    cloud.create_component()
    assert cloud.wait_component("Failed")["FailureReason"] == (
        "The container of inference component c did not pass the ping health check. Please check CloudWatch logs for "
        "this inference component."
    )
    with faulted("ValidationException", 400, "Cannot update failed inference component"):
        cloud.scale_component(2)
    cloud.sagemaker.delete_inference_component(InferenceComponentName="c")
    wait(lambda: not cloud.sagemaker.list_inference_components()["InferenceComponents"])
    cloud.factory.failing = False
    cloud.create_component()
    cloud.wait_component("InService")


def test_an_archive_that_cannot_be_read_fails_the_component(cloud: Cloud) -> None:
    """A fault of the archive is the FailureReason."""
    cloud.deploy_components()
    cloud.s3.put_object(Bucket="models", Key="p/all.tar.gz", Body=b"no archive")
    cloud.create_component()
    reason = cloud.wait_component("Failed")["FailureReason"]
    assert "Failed to extract model data(bucket: models, key: p/all.tar.gz)" in reason


def test_an_endpoint_outlives_its_components(cloud: Cloud, wait: Callable[..., None]) -> None:
    """DeleteEndpoint is rejected until its components are deleted."""
    cloud.deploy_components()
    cloud.create_component()
    cloud.wait_component("InService")
    with faulted("ValidationException", 400, "Cannot delete endpoint with inference component associated."):
        cloud.sagemaker.delete_endpoint(EndpointName="e")
    cloud.sagemaker.delete_inference_component(InferenceComponentName="c")
    wait(lambda: not cloud.sagemaker.list_inference_components()["InferenceComponents"])
    cloud.sagemaker.delete_endpoint(EndpointName="e")
    wait(lambda: not cloud.sagemaker.list_endpoints()["Endpoints"])
    assert cloud.factory.running == []


def test_a_component_is_not_created_beside_one_that_is_being_created(cloud: Cloud) -> None:
    """A component is rejected while another one is being created on the endpoint."""
    cloud.deploy_components()
    cloud.create_component("a")
    with faulted("ValidationException", 400, "in state Updating"):
        cloud.create_component("b")
    cloud.wait_component("InService", "a")
    cloud.create_component("b")
    cloud.wait_component("InService", "b")


def test_an_update_needs_something_to_update(cloud: Cloud) -> None:
    """A name alone, or a rollout alone, is refused; alarms that roll back are no part of the emulation."""
    cloud.deploy_components()
    cloud.create_component()
    cloud.wait_component("InService")
    policy = {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}
    update = cloud.sagemaker.update_inference_component
    for more in ({}, {"DeploymentConfig": {"RollingUpdatePolicy": policy}}):
        with faulted("ValidationException", 400, "Specification"):
            update(InferenceComponentName="c", **more)
    rollback = {"RollingUpdatePolicy": policy, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}
    with faulted("ValidationException", 400, "AutoRollbackConfiguration"):
        update(InferenceComponentName="c", RuntimeConfig={"CopyCount": 1}, DeploymentConfig=rollback)


def test_components_are_listed_and_tagged(cloud: Cloud) -> None:
    """ListInferenceComponents filters by endpoint, variant, status and name; tags go by the ARN."""
    cloud.deploy_components(maximum=3)
    arn = cloud.create_component("b")
    cloud.wait_component("InService", "b")
    cloud.create_component("a")
    cloud.wait_component("InService", "a")

    def names(**query: str) -> list[str]:
        found = cloud.sagemaker.list_inference_components(SortBy="Name", SortOrder="Ascending", **query)
        return [component["InferenceComponentName"] for component in found["InferenceComponents"]]

    assert names(EndpointNameEquals="e", VariantNameEquals="AllTraffic", StatusEquals="InService") == ["a", "b"]
    assert names(EndpointNameEquals="other") == names(StatusEquals="Failed") == []
    assert names(NameContains="b") == ["b"]
    by_status = cloud.sagemaker.list_inference_components(SortBy="Status", MaxResults=1)
    assert (len(by_status["InferenceComponents"]), "NextToken" in by_status) == (1, True)
    cloud.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "k", "Value": "v"}])
    assert cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "k", "Value": "v"}]
