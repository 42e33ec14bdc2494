"""GPU partitions of an endpoint for inference components, through boto3: the documented refusals and the placement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

from load_tests.targets import partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process

P4D = {"InstanceType": "ml.p4d.24xlarge"}
SMALL, LARGE = "mig-1g.5gb", "mig-3g.20gb"


@pytest.fixture
def cloud(make_cloud: Callable[..., Cloud]) -> Cloud:
    """An emulation whose account has a quota for the GPUs with partitions; a fresh account has none."""
    return make_cloud(instance_quotas={"ml.p4d.24xlarge": 4, "ml.g5.xlarge": 4})


def layouts(*types: str) -> list[dict[str, Any]]:
    """One layout of these partitions."""
    return [{"AcceleratorPartitionTypes": list(types)}]


def needs(partition: str | None, accelerators: int | None = 1) -> dict[str, Any]:
    """What a copy needs."""
    given = {"AcceleratorPartitionType": partition, "NumberOfAcceleratorDevicesRequired": accelerators}
    return {"MinMemoryRequiredInMb": 1024, **{key: value for key, value in given.items() if value is not None}}


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        ({**P4D, "AcceleratorPartitionLayouts": layouts(SMALL) * 2}, "must contain exactly 1 entry, not 2"),
        ({**P4D, "AcceleratorPartitionLayouts": layouts()}, "no partition type is not valid"),
        ({**P4D, "AcceleratorPartitionLayouts": layouts("mig-1g.18gb")}, "Valid partition types: mig-1g.5gb, "),
        ({**P4D, "AcceleratorPartitionLayouts": layouts("mig-1g.5gb+me")}, "mig-1g.5gb[+]me is not valid"),
        ({"AcceleratorPartitionLayouts": layouts(SMALL)}, "not valid for ml.g5.xlarge. Valid partition types: none"),
        (
            {**P4D, "AcceleratorPartitionLayouts": layouts(*[SMALL] * 8)},
            "it provides 7 compute slices and 8 memory slices, requested are 8 compute slices and 8 memory slices",
        ),
        (
            {
                **P4D,
                "ModelName": "model",
                "ManagedInstanceScaling": None,
                "AcceleratorPartitionLayouts": layouts(SMALL),
            },
            "partitions are for inference components",
        ),
    ],
)
def test_a_layout_that_the_gpu_does_not_have_is_refused(cloud: Cloud, variant: dict[str, Any], text: str) -> None:
    """CreateEndpointConfig answers 400 and says what is valid."""
    cloud.put_model("all.tar.gz", **{"mini/answer": "mini"})
    cloud.create_model(Mode=None, ModelDataUrl="s3://models/p/all.tar.gz")
    with faulted("ValidationException", 400, text.replace("[+]", "+")):
        cloud.create_component_config(**variant)


def test_partitions_are_described_as_they_were_requested(cloud: Cloud) -> None:
    """Configuration, endpoint and component give the members back, the layout in the order of the request."""
    cloud.deploy_components(**P4D, AcceleratorPartitionLayouts=layouts(LARGE, SMALL))
    config = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config")
    assert config["ProductionVariants"][0]["AcceleratorPartitionLayouts"] == layouts(LARGE, SMALL)
    assert cloud.status()["ProductionVariants"][0]["AcceleratorPartitionLayouts"] == layouts(LARGE, SMALL)
    cloud.create_component(ComputeResourceRequirements=needs(SMALL))
    component = cloud.wait_component("InService")
    assert component["Specification"]["ComputeResourceRequirements"] == needs(SMALL)
    # The models of a container may take the partition's memory, not that of the whole GPU.
    assert cloud.factory.started[0].options["memory_mb"] == 5 * 1024


@pytest.mark.parametrize(
    ("requirements", "text"),
    [
        (needs(None), "AcceleratorPartitionType is required"),
        (needs("mig-2g.10gb"), f"Declared partition types: {SMALL}"),
        (needs(SMALL, accelerators=2), "NumberOfAcceleratorDevicesRequired must be 1"),
        (needs(SMALL, accelerators=None), "NumberOfAcceleratorDevicesRequired must be 1"),
    ],
)
def test_a_component_names_one_partition_of_the_layout(cloud: Cloud, requirements: dict[str, Any], text: str) -> None:
    """CreateInferenceComponent answers 400 and names the declared types."""
    cloud.deploy_components(**P4D, AcceleratorPartitionLayouts=layouts(SMALL))
    with faulted("ValidationException", 400, text):
        cloud.create_component(ComputeResourceRequirements=requirements)


def test_a_partition_without_a_layout_is_refused(cloud: Cloud) -> None:
    """On an endpoint of whole GPUs the member has to be left out."""
    cloud.deploy_components()
    with faulted("ValidationException", 400, "has no accelerator partition layout"):
        cloud.create_component(ComputeResourceRequirements=needs(SMALL))


def test_neither_partition_nor_layout_can_be_changed(cloud: Cloud) -> None:
    """A component keeps its type and an endpoint its layout, even if only the order differs."""
    cloud.deploy_components(**P4D, AcceleratorPartitionLayouts=layouts(LARGE, SMALL))
    cloud.create_component(ComputeResourceRequirements=needs(SMALL))
    cloud.wait_component("InService")
    with faulted("ValidationException", 400, "AcceleratorPartitionType cannot be changed"):
        cloud.sagemaker.update_inference_component(
            InferenceComponentName="c", Specification={"ComputeResourceRequirements": needs(LARGE)}
        )
    for name, changed in (("reordered", layouts(SMALL, LARGE)), ("whole", None)):
        cloud.create_component_config(name, **P4D, AcceleratorPartitionLayouts=changed)
        with faulted("ValidationException", 400, "Cannot change AcceleratorPartitionLayouts"):
            cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName=name)
    cloud.create_component_config("same", **P4D, AcceleratorPartitionLayouts=layouts(LARGE, SMALL))
    cloud.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="same")
    cloud.wait_status("InService")


def test_a_load_test_knows_the_partitions_of_its_target(cloud: Cloud) -> None:
    """The comparison of designs tells them from components on whole GPUs."""
    cloud.deploy_components(**P4D, AcceleratorPartitionLayouts=layouts(LARGE, SMALL))
    config = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config")
    assert partitions_of(config["ProductionVariants"][0]) == (LARGE, SMALL)
    cloud.create_component_config("whole")
    whole = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="whole")
    assert partitions_of(whole["ProductionVariants"][0]) == ()
