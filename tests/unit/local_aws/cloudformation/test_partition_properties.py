"""GPU partitions in a template: SageMaker's API has them, CloudFormation's resource types do not."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.checks import check_template
from local_aws.cloudformation.resources import ResourceTypes, aws_types
from local_aws.cloudformation.resources.custom import CustomResource, Responses
from local_aws.cloudformation.templates.template import parse_template

VARIANT = {"VariantName": "v", "InstanceType": "ml.p4d.24xlarge", "InitialInstanceCount": 1}
LAYOUTS = [{"AcceleratorPartitionTypes": ["mig-1g.5gb"]}]
NEEDS = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}


def checked(type_name: str, properties: dict[str, Any]) -> None:
    """Check a template of one resource."""
    types = ResourceTypes(aws_types(), custom=CustomResource(Responses(lambda: "")))
    check_template(
        parse_template(json.dumps({"Resources": {"R": {"Type": type_name, "Properties": properties}}})), types
    )


@pytest.mark.parametrize(
    ("type_name", "properties", "place"),
    [
        (
            "AWS::SageMaker::EndpointConfig",
            {"ProductionVariants": [VARIANT, {**VARIANT, "AcceleratorPartitionLayouts": LAYOUTS}]},
            "#/ProductionVariants/1: extraneous key [AcceleratorPartitionLayouts] is not permitted",
        ),
        (
            "AWS::SageMaker::InferenceComponent",
            {
                "EndpointName": "e",
                "Specification": {
                    "ComputeResourceRequirements": {**NEEDS, "AcceleratorPartitionType": "mig-1g.5gb"},
                },
            },
            "#/Specification/ComputeResourceRequirements: extraneous key [AcceleratorPartitionType] is not permitted",
        ),
    ],
)
def test_a_property_that_the_schema_lacks_is_refused(type_name: str, properties: dict[str, Any], place: str) -> None:
    """The emulation is not kinder than CloudFormation, although its SageMaker has the members."""
    with faulted("ValidationError", 400, place):
        checked(type_name, properties)


def test_the_same_without_partitions_is_taken() -> None:
    """Nothing else of the properties is refused."""
    checked("AWS::SageMaker::EndpointConfig", {"ProductionVariants": [VARIANT]})
    specification = {"ComputeResourceRequirements": NEEDS}
    checked("AWS::SageMaker::InferenceComponent", {"EndpointName": "e", "Specification": specification})


def test_the_schemas_of_cfn_lint_lack_them_still() -> None:
    """The day on which this fails, the emulation and the stack may pass partitions on."""
    schemas = [
        json.loads(file.read_text())
        for file in files("cfnlint.data.schemas").joinpath("resources").iterdir()
        if "SageMaker" in file.read_text()
    ]
    types = {"AWS::SageMaker::EndpointConfig", "AWS::SageMaker::InferenceComponent"}
    found = [json.dumps(schema) for schema in schemas if schema.get("typeName") in types]
    assert len(found) == 2
    assert not any("AcceleratorPartition" in schema for schema in found)
