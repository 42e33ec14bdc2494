"""The stack of one component per model: GPUs, names, and its checks."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from synthesis import FLAGS, only, resources, statements, template_of, waits_for

from cohost.catalog.models import Catalog
from stacks.inference_components_stack import STACK_ID, InferenceComponentsStack

ENTRY = {"task": "text-classification", "required_memory_mb": 1024}
MODELS = {"nli": {"model_id": "org/nli", **ENTRY}, "mini": {"model_id": "org/mini", **ENTRY}}


KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def make_stack(
    *,
    endpoint_name: str = "lmi-cohost",
    models: dict[str, Any] | None = None,
    endpoint: dict[str, Any] | None = None,
    storage: dict[str, Any] | None = None,
    **design: Any,
) -> Any:
    """A fresh stack in a fresh app with the flags of cdk.json."""
    image = "djl-inference:0.36.0-lmi26.0.0-cu130"
    catalog = Catalog.model_validate(
        {
            "endpoint": {"name": endpoint_name, "instance_type": "ml.g5.xlarge", "image": image, **(endpoint or {})},
            "storage": storage or {},
            "models": models or MODELS,
            "designs": {"inference-components": design},
        }
    )
    app = cdk.App(context=FLAGS, analytics_reporting=False)
    return InferenceComponentsStack(app, STACK_ID, catalog=catalog, env=cdk.Environment(region="us-east-1"))


def errors_of(stack: Any) -> list[str]:
    """The errors that the stack is annotated with."""
    return [str(entry.data) for entry in stack.node.metadata if entry.type == "aws:cdk:error"]


def test_each_model_is_a_component_with_a_gpu_of_its_own() -> None:
    """Each model is a component with one GPU, its own archive, and the name that callers use."""
    template = template_of(make_stack())
    components = resources(template, "AWS::SageMaker::InferenceComponent").values()
    found = {one["Properties"]["InferenceComponentName"]: one["Properties"] for one in components}
    assert set(found) == {"lmi-cohost-components-nli", "lmi-cohost-components-mini"}
    for name, properties in found.items():
        specification = properties["Specification"]
        assert specification["ComputeResourceRequirements"] == {
            "NumberOfAcceleratorDevicesRequired": 1,
            "MinMemoryRequiredInMb": 1024,
        }
        model = name.rpartition("-")[2]
        assert json.dumps(specification["Container"]["ArtifactUrl"]).endswith(f'"{model}.tar.gz"]]}}')
        assert properties["RuntimeConfig"] == {"CopyCount": 1}
    assert json.loads(template["Outputs"]["Models"]["Value"]) == {
        "nli": "lmi-cohost-components-nli",
        "mini": "lmi-cohost-components-mini",
    }
    assert set(json.loads(template["Outputs"]["Kinds"]["Value"])) == {"nli", "mini"}


def test_components_are_created_one_after_the_other() -> None:
    """Each component waits for the previous one, because SageMaker may reject it while instances start."""
    models = {name: {"model_id": f"org/{name}", **ENTRY} for name in "abc"}
    template = template_of(make_stack(models=models))
    ids = {
        one["Properties"]["InferenceComponentName"][-1]: name
        for name, one in resources(template, "AWS::SageMaker::InferenceComponent").items()
    }
    for first, second in ("ab", "bc"):
        assert ids[first] in template["Resources"][ids[second]]["DependsOn"]


def test_another_name_makes_new_components() -> None:
    """Another endpoint name creates new components, because SageMaker cannot rename them."""
    ids = {
        name: set(resources(template_of(make_stack(name=name)), "AWS::SageMaker::InferenceComponent"))
        for name in (None, "lmi-cohost-components", "other", "third")
    }
    assert ids[None] == ids["lmi-cohost-components"]
    assert sum(map(len, (ids[None], ids["other"], ids["third"]))) == len(ids[None] | ids["other"] | ids["third"]) == 6


def test_instances_are_managed_and_no_model_is_named() -> None:
    """The variant has managed scaling and no model, and the role is in the endpoint config."""
    template = template_of(make_stack(max_instance_count=3))
    _, config = only(template, "AWS::SageMaker::EndpointConfig")
    (variant,) = config["Properties"]["ProductionVariants"]
    assert variant["ManagedInstanceScaling"] == {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 3}
    assert variant["InstanceType"] == "ml.g6.12xlarge"
    assert "ModelName" not in variant
    assert "ExecutionRoleArn" in config["Properties"]
    assert resources(template, "AWS::SageMaker::Model") == {}


def test_components_wait_for_endpoint_logs_and_rights() -> None:
    """Components are created after endpoint, log groups and rights, and deleted before the endpoint."""
    template = template_of(make_stack())
    endpoint_id, _ = only(template, "AWS::SageMaker::Endpoint")
    for name in resources(template, "AWS::SageMaker::InferenceComponent"):
        assert waits_for(template, name, endpoint_id)
        groups = [one for one in resources(template, "AWS::Logs::LogGroup") if waits_for(template, name, one)]
        assert any("InferenceComponents/" in json.dumps(template["Resources"][one]) for one in groups)
    roles = [name for name in resources(template, "AWS::IAM::Role") if "ExecutionRole" in name]
    logs = [one for one in statements(template, roles[0]) if "logs:PutLogEvents" in one["Action"]]
    assert logs


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (
            {"instance_type": "ml.g6.xlarge", "max_instance_count": 1},
            "2 copies take a GPU each, and 1 x ml.g6.xlarge have 1",
        ),
        ({"copy_count": 5}, "10 copies take a GPU each, and 2 x ml.g6.12xlarge have 8"),
        ({"endpoint_name": "e" * 60}, "characters; allowed: 63 for a component"),
        ({"endpoint": {"environment": {f"V{n}": "x" for n in range(17)}}}, "has 17 variables; allowed: 16"),
        ({"endpoint": {"environment": {"V": "x"}}}, "'V' has 1 character"),
    ],
)
def test_what_never_fits_is_an_error(changed: dict[str, Any], fault: str) -> None:
    """A component with an invalid name, or for which no GPU is left, is an error."""
    stack = make_stack(**{"name": None, **changed})
    assert [fault in error for error in errors_of(stack)].count(True) == 1, errors_of(stack)


def test_what_fits_has_no_error() -> None:
    """The default settings of the design fit the models of the default catalog."""
    assert errors_of(make_stack()) == []


def test_archives_are_encrypted_with_the_catalog_s_key() -> None:
    """The bucket has the KMS key, with which containers may decrypt and the publishing function may encrypt."""
    template = template_of(make_stack(storage={"kms_key": KEY}))
    _, bucket = only(template, "AWS::S3::Bucket")
    assert KEY in str(bucket["Properties"]["BucketEncryption"])
    rights = {
        name: [one["Action"] for one in statements(template, name) if one["Resource"] == KEY]
        for name in resources(template, "AWS::IAM::Role")
    }
    assert [found for name, found in rights.items() if name.startswith("EndpointExecutionRole")] == [["kms:Decrypt"]]
    publisher = [found for name, found in rights.items() if name.startswith("ModelStoreRole")]
    assert publisher == [[["kms:Decrypt", "kms:GenerateDataKey"]]]


@pytest.mark.parametrize(("instance_type", "key"), [("ml.p3.8xlarge", KEY), ("ml.g6.12xlarge", None)])
def test_volumes_have_the_endpoint_s_key_where_the_type_takes_one(instance_type: str, key: str | None) -> None:
    """The design's volumes have the catalog's KMS key if the instance type has volumes to encrypt."""
    own = {"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.m5.xlarge", "kms_key": KEY}
    stack = make_stack(endpoint=own, instance_type=instance_type)
    assert [error for error in errors_of(stack) if "kms" in error] == []
    _, config = only(template_of(stack), "AWS::SageMaker::EndpointConfig")
    assert config["Properties"].get("KmsKeyId") == key
