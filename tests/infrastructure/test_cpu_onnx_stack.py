"""The stack of the CPU and ONNX design: archives as assets, a role that reads only these, and its checks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from fakes.refusals import refused
from synthesis import FLAGS, only, resources, statements, template_of

from cohost.catalog.models import Catalog
from cohost.designs.onnx.archive import archive_file, note_file
from cohost.designs.onnx.recipe import recipe_for
from cohost.errors import OnnxError
from stacks.cpu_onnx_stack import STACK_ID, CpuOnnxStack

if TYPE_CHECKING:
    from collections.abc import Mapping

MODELS = {
    "nli": {"model_id": "org/nli", "task": "text-classification"},
    "mini": {"model_id": "org/mini", "task": "feature-extraction"},
}


def make_catalog(
    folder: Path, *, models: Mapping[str, Any] = MODELS, endpoint: Mapping[str, Any] | None = None, **design: Any
) -> Catalog:
    """A catalog with a CPU design whose archives lie in a folder."""
    image = "djl-inference:0.36.0-lmi26.0.0-cu130"
    return Catalog.model_validate(
        {
            "endpoint": {"name": "lmi-cohost", "instance_type": "ml.g5.xlarge", "image": image, **(endpoint or {})},
            "models": models,
            "designs": {"cpu-onnx": {"archives": str(folder), **design}},
        }
    )


def pretend_exported(catalog: Catalog, folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write archives with the notes of `cohost export-onnx`; a synth reads only their checksums."""
    for name, content in contents.items():
        archive_file(folder, name).write_bytes(content)
        note = {
            "recipe": recipe_for(name, catalog).as_data("translator"),
            "serving": "translator",
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        note_file(folder, name).write_text(json.dumps(note))


def make_stack(catalog: Catalog) -> CpuOnnxStack:
    """A fresh stack in a fresh app with the flags of cdk.json."""
    app = cdk.App(context=FLAGS, analytics_reporting=False)
    return CpuOnnxStack(app, STACK_ID, catalog=catalog, env=cdk.Environment(region="us-east-1"))


@pytest.fixture
def exported(tmp_path: Path) -> Catalog:
    """A catalog whose models are exported."""
    catalog = make_catalog(tmp_path)
    pretend_exported(catalog, tmp_path, {"nli": b"one", "mini": b"two"})
    return catalog


def test_archives_are_named_by_their_checksums(exported: Catalog) -> None:
    """The S3 key of an archive is its SHA-256, and TargetModels are these keys."""
    template = template_of(make_stack(exported))
    models = json.loads(template["Outputs"]["Models"]["Value"])
    assert models == {
        "nli": f"{hashlib.sha256(b'one').hexdigest()}.tar.gz",
        "mini": f"{hashlib.sha256(b'two').hexdigest()}.tar.gz",
    }
    _, model = only(template, "AWS::SageMaker::Model")
    container = model["Properties"]["PrimaryContainer"]
    assert container["Mode"] == "MultiModel"
    assert container["Image"].endswith("/djl-inference:0.36.0-cpu-full")
    assert json.dumps(container["ModelDataUrl"]).endswith('/cohost/cpu-onnx/"]]}')


def test_uploads_go_from_this_machine_to_those_keys(exported: Catalog) -> None:
    """The asset manifest names the uploads of `cdk deploy`, so the stack needs no function for them."""
    assembly = template_assembly(exported)
    files = json.loads(Path(assembly.directory, f"{STACK_ID}.assets.json").read_text())["files"]
    keys = {}
    for file in files.values():
        (destination,) = file["destinations"].values()
        if destination["objectKey"].endswith(".tar.gz"):
            keys[destination["objectKey"]] = Path(assembly.directory, file["source"]["path"]).read_bytes()
    assert keys == {
        f"cohost/cpu-onnx/{hashlib.sha256(content).hexdigest()}.tar.gz": content for content in (b"one", b"two")
    }
    assert resources(assembly.get_stack_by_name(STACK_ID).template, "AWS::Lambda::Function") == {}


def template_assembly(catalog: Catalog) -> Any:
    """The cloud assembly of the stack's app."""
    app = make_stack(catalog).node.root
    assert isinstance(app, cdk.App)
    return app.synth()


def test_role_reads_the_archives_and_nothing_else(exported: Catalog) -> None:
    """The role reads only the archives in the bootstrap bucket, which has code of other stacks too."""
    template = template_of(make_stack(exported))
    (role_id,) = resources(template, "AWS::IAM::Role")
    found = statements(template, role_id)
    (read,) = [one for one in found if one["Action"] == "s3:GetObject"]
    assert len(read["Resource"]) == 2
    assert all(json.dumps(resource).endswith('.tar.gz"]]}') for resource in read["Resource"])
    (listing,) = [one for one in found if one["Action"] == "s3:ListBucket"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "cohost/cpu-onnx/*"}}


def test_changed_model_leaves_model_and_endpoint_alone(exported: Catalog, tmp_path: Path) -> None:
    """A changed model gets an archive with a new name, and no resource is replaced."""
    before = template_of(make_stack(exported))["Resources"]
    pretend_exported(exported, tmp_path, {"nli": b"three"})
    after = template_of(make_stack(exported))["Resources"]
    changed = {name for name in before if before[name] != after[name]}
    assert {before[name]["Type"] for name in changed} == {"AWS::IAM::Policy"}


def test_model_that_is_not_exported_stops(exported: Catalog, tmp_path: Path) -> None:
    """A synth without the ONNX archive fails with an error that has the command to run."""
    note_file(tmp_path, "mini").unlink()
    with refused("export-missing", kind=OnnxError):
        make_stack(exported)


def test_own_name_type_and_count_are_taken(tmp_path: Path) -> None:
    """The design has its own endpoint name, instance type and count."""
    catalog = make_catalog(tmp_path, name="cheap", instance_type="ml.c7i.xlarge", initial_instance_count=2)
    pretend_exported(catalog, tmp_path, {"nli": b"one", "mini": b"two"})
    template = template_of(make_stack(catalog))
    _, config = only(template, "AWS::SageMaker::EndpointConfig")
    (variant,) = config["Properties"]["ProductionVariants"]
    assert (variant["InstanceType"], variant["InitialInstanceCount"]) == ("ml.c7i.xlarge", 2)
    assert template["Outputs"]["EndpointName"]["Value"] == "cheap"
    assert template["Outputs"]["CostPerHourUsd"]["Value"] == "0.420"


@pytest.mark.parametrize(
    ("image", "fault"),
    [
        ("djl-inference:0.36.0-tensorrtllm0.21.0-cu128", "has no OnnxRuntime engine; allowed: cpu-full"),
        ("djl-inference:0.36.0-lmi26.0.0-cu130", "is built for GPUs, ml.c7i.2xlarge has none"),
    ],
)
def test_images_that_do_not_fit_are_told(tmp_path: Path, image: str, fault: str) -> None:
    """An image without the ONNX engine, and an image for GPUs, are reported."""
    catalog = make_catalog(tmp_path, image=image)
    pretend_exported(catalog, tmp_path, {"nli": b"one", "mini": b"two"})
    stack = make_stack(catalog)
    notes = [entry.data for entry in stack.node.metadata]
    assert any(fault in str(note) for note in notes), notes


@pytest.mark.parametrize(("instance_type", "encrypted"), [("ml.c7i.2xlarge", True), ("ml.m5d.xlarge", False)])
def test_volumes_have_the_endpoint_s_key_where_the_type_takes_one(
    tmp_path: Path,
    instance_type: str,
    encrypted: bool,  # noqa: FBT001
) -> None:
    """The design's volumes have the catalog's KMS key if the instance type has volumes to encrypt."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    catalog = make_catalog(tmp_path, endpoint={"kms_key": key}, instance_type=instance_type)
    pretend_exported(catalog, tmp_path, {"nli": b"one", "mini": b"two"})
    stack = make_stack(catalog)
    assert [entry.data for entry in stack.node.metadata if entry.type == "aws:cdk:error"] == []
    _, config = only(template_of(stack), "AWS::SageMaker::EndpointConfig")
    assert config["Properties"].get("KmsKeyId") == (key if encrypted else None)
