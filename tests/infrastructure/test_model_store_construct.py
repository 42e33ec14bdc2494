"""The custom resource that publishes archives, its function and its rights."""

from __future__ import annotations

import os
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from synthesis import FLAGS, ROOT, make_catalog, make_stack, only, resources, statements, template_of, waits_for

from cohost.archives.handlers import handler_version, wheel_reference
from cohost.catalog.serving import properties_of
from constructs_lib.storage import model_store as publisher_code
from constructs_lib.storage.buckets import ModelBucket
from constructs_lib.storage.model_store import ModelStore

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.catalog.models import Catalog

STORE = "Custom::LmiModelStore"


def function_of(template: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model store's function."""
    return only(template, "AWS::Lambda::Function")


def errors_of(construct: cdk.Stack) -> list[str]:
    """Return every error annotation of a stack."""
    return [
        entry.data
        for node in construct.node.find_all()
        for entry in node.node.metadata
        if entry.type == "aws:cdk:error"
    ]


def stack_with(models: dict[str, dict[str, str]]) -> cdk.Stack:
    """Return a stack that only publishes these models."""
    stack = cdk.Stack(cdk.App(context=FLAGS, analytics_reporting=False), "Store")
    bucket = ModelBucket(stack, "ModelBucket", keep_on_destroy=False)
    ModelStore(
        stack,
        "ModelStore",
        bucket=bucket,
        prefix="p/",
        models=models,
        requirements={},
        handlers={},
        keep_on_destroy=False,
    )
    return stack


def test_every_property_stands_in_the_template(product: dict[str, Any], product_catalog: Catalog) -> None:
    """`cdk diff` shows each property of an archive on a line of its own, in the order of the file."""
    _, store = only(product, STORE)
    bucket_id, _ = only(product, "AWS::S3::Bucket")
    assert store["Properties"]["Bucket"] == {"Ref": bucket_id}
    assert store["Properties"]["Prefix"] == "encoder-serving/lmi/04-lmi/"
    told = {name: list(properties.items()) for name, properties in store["Properties"]["Models"].items()}
    assert told == {name: list(properties_of(entry).items()) for name, entry in product_catalog.models.items()}


def test_handler_s_code_is_named_with_its_version() -> None:
    """Changed handler code changes the resource's property, so the code is published and `cdk diff` shows it."""
    entry = {"model_id": "org/name", "task": "text-classification"}
    catalog = make_catalog(models={"stock": entry, "fast": {**entry, "handler": "batched"}})
    _, store = only(template_of(make_stack(catalog)), STORE)
    assert store["Properties"]["Handlers"] == {"fast": f"batched@{handler_version('batched')}"}


def test_no_handlers_are_left_out(product: dict[str, Any]) -> None:
    """The resource has no property `Handlers` if the stock handler serves all models."""
    _, store = only(product, STORE)
    assert "Handlers" not in store["Properties"]


def test_all_values_are_text(product: dict[str, Any]) -> None:
    """All property values are text, because CloudFormation sends numbers as text, and digests must agree."""
    _, store = only(product, STORE)
    values = [value for properties in store["Properties"]["Models"].values() for value in properties.values()]
    assert {type(value) for value in values} == {str}


def test_requirements_are_left_out_where_no_model_has_any(product: dict[str, Any]) -> None:
    """The property Requirements is missing if no model has requirements, as with the lmi image."""
    _, store = only(product, STORE)
    assert "Requirements" not in store["Properties"]


def test_cpu_image_gets_requirements_for_each_model() -> None:
    """With the cpu-full image each archive has requirements, because the image has no Python packages."""
    catalog = make_catalog(endpoint={"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.c7i.xlarge"})
    _, store = only(template_of(make_stack(catalog)), STORE)
    requirements = store["Properties"]["Requirements"]
    assert set(requirements) == {"nli", "mini"}
    assert "transformers==" in requirements["nli"]
    assert "\n" in requirements["nli"]


def test_cloudformation_waits_longer_than_the_function_may_run(product: dict[str, Any]) -> None:
    """CloudFormation waits one minute longer than the function may run, and not an hour."""
    _, function = function_of(product)
    _, store = only(product, STORE)
    assert function["Properties"]["Timeout"] == 900
    assert store["Properties"]["ServiceTimeout"] == "960"


def test_function_runs_the_handler_of_the_archives_folder(product: dict[str, Any]) -> None:
    """The entry point is the module that the tests import."""
    _, function = function_of(product)
    assert function["Properties"]["Handler"] == "archives.index.on_event"
    assert function["Properties"]["Runtime"] == "python3.13"
    assert "Environment" not in function["Properties"]


def test_function_log_goes_with_the_stack(product: dict[str, Any]) -> None:
    """The log group is the stack's own, ends after a month, and is deleted after the function."""
    function_id, function = function_of(product)
    group_id = function["Properties"]["LoggingConfig"]["LogGroup"]["Ref"]
    group = product["Resources"][group_id]
    assert (group["Type"], group["DeletionPolicy"]) == ("AWS::Logs::LogGroup", "Delete")
    assert group["Properties"]["RetentionInDays"] == 30
    assert waits_for(product, function_id, group_id)


def test_function_may_touch_its_prefix_only(product: dict[str, Any]) -> None:
    """The function has no right on other keys or buckets, and may only list the bucket below its prefix."""
    # GIVEN
    _, function = function_of(product)
    bucket_id, _ = only(product, "AWS::S3::Bucket")
    bucket_arn = {"Fn::GetAtt": [bucket_id, "Arn"]}
    # WHEN
    rights = {
        action: (statement["Resource"], statement.get("Condition"))
        for statement in statements(product, function["Properties"]["Role"]["Fn::GetAtt"][0])
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    # THEN
    objects = ({"Fn::Join": ["", [bucket_arn, "/encoder-serving/lmi/04-lmi/*"]]}, None)
    assert {rights.pop(f"s3:{verb}Object") == objects for verb in ("Get", "Put", "Delete")} == {True}
    assert rights.pop("s3:ListBucket") == (
        bucket_arn,
        {"StringLike": {"s3:prefix": "encoder-serving/lmi/04-lmi/*"}},
    )
    assert set(rights) == {"logs:CreateLogStream", "logs:PutLogEvents"}


def test_archives_wait_for_the_functions_rights(product: dict[str, Any]) -> None:
    """The custom resource is created after the rights of its function and deleted before them."""
    store_id, _ = only(product, STORE)
    policies = [
        name
        for name, policy in resources(product, "AWS::IAM::Policy").items()
        if {"Ref": function_of(product)[1]["Properties"]["Role"]["Fn::GetAtt"][0]} in policy["Properties"]["Roles"]
    ]
    assert len(policies) == 1
    assert waits_for(product, store_id, policies[0])


@pytest.mark.parametrize(("on_destroy", "policy"), [("delete", "Delete"), ("keep", "Retain")])
def test_kept_archives_stay_but_replaced_ones_go(on_destroy: str, policy: str) -> None:
    """With `keep` the last generation outlives the stack; earlier generations are still deleted."""
    _, store = only(template_of(make_stack(make_catalog(storage={"on_destroy": on_destroy}))), STORE)
    assert store["DeletionPolicy"] == policy
    assert store["UpdateReplacePolicy"] == "Delete"


def test_asset_is_the_archives_and_handler_folders_alone(product_catalog: Catalog, tmp_path: Path) -> None:
    """The function's code is every source of the two folders that tests import, byte for byte, and nothing else."""
    # WHEN
    make_stack(product_catalog, outdir=tmp_path).node.root.synth()  # type: ignore[attr-defined]
    # THEN
    [asset] = tmp_path.glob("asset.*")
    packed = {file.relative_to(asset).as_posix(): file.read_bytes() for file in asset.rglob("*") if file.is_file()}
    sources = [*(ROOT / "cohost/archives").rglob("*"), *(ROOT / "cohost/handler").rglob("*")]
    assert packed == {
        file.relative_to(ROOT / "cohost").as_posix(): file.read_bytes()
        for file in sources
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_wheels_of_a_model_travel_with_the_functions_code(tmp_path: Path) -> None:
    """The function's asset has each wheel, and the resource names its SHA-256."""
    # GIVEN
    wheel = tmp_path / "kernel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernel.py", "")
    entry = {"model_id": "org/name", "task": "text-classification", "packages": [str(wheel)]}
    catalog = make_catalog(models={"fast": {**entry, "handler": "batched"}, "plain": {**entry, "packages": []}})
    # WHEN
    stack = make_stack(catalog, outdir=tmp_path / "out")
    stack.node.root.synth()  # type: ignore[attr-defined]
    # THEN
    _, store = only(template_of(stack), STORE)
    assert store["Properties"]["Wheels"] == {"fast": wheel_reference(wheel.name, wheel.read_bytes())}
    assert store["Properties"]["Requirements"] == {"fast": "--no-index\n--find-links .\nkernel==1.0"}
    assets = [folder for folder in (tmp_path / "out").glob("asset.*") if (folder / "wheels").is_dir()]
    (asset,) = assets
    assert (asset / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()
    assert {file.name for file in asset.iterdir()} == {"archives", "handler", "wheels"}
    index = (ROOT / "cohost/archives/index.py").read_bytes()
    assert (asset / "archives" / "index.py").read_bytes() == index


def test_asset_changes_with_its_sources_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, product_catalog: Catalog
) -> None:
    """The function's asset changes only with its sources, not with file times or compiled files."""
    # GIVEN
    shutil.copytree(
        ROOT / "cohost/archives", tmp_path / "cohost/archives", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(publisher_code, "_ROOT", tmp_path / "cohost")
    index = tmp_path / "cohost/archives/index.py"

    def code() -> dict[str, Any]:
        found: dict[str, Any] = function_of(template_of(make_stack(product_catalog)))[1]["Properties"]["Code"]
        return found

    before = code()
    # WHEN
    os.utime(index, (1, 1))
    (tmp_path / "cohost/archives/__pycache__").mkdir()
    (tmp_path / "cohost/archives/__pycache__/index.cpython-313.pyc").write_bytes(b"compiled")
    (tmp_path / "cohost/routing.py").write_text("another module\n")
    touched = code()
    index.write_text(index.read_text() + "\n")
    changed = code()
    # THEN
    assert touched == before
    assert changed != before


def large_entry() -> dict[str, str]:
    """The properties of an entry that uses every key."""
    entry = {"model_id": "organisation/" + "m" * 80, "task": "zero-shot-classification", "revision": "0" * 40}
    settings = {
        "required_memory_mb": 2048,
        "reserved_memory_mb": 512,
        "batch_size": 8,
        "max_batch_delay": 10,
        "max_idle_time": 600,
        "job_queue_size": 1000,
        "dtype": "fp16",
        "trust_remote_code": False,
        "gpu": {"minWorkers": 1, "maxWorkers": 1, "required_memory_mb": 2048},
        "cpu": {"minWorkers": 1, "maxWorkers": 1},
    }
    return properties_of(make_catalog(models={"m": entry | settings}).models["m"])


def test_ordinary_catalogs_fit_into_an_event(product_catalog: Catalog) -> None:
    """An event with over a hundred ordinary entries is below the limit."""
    entry = properties_of(product_catalog.models["mdeberta"])
    assert errors_of(stack_with({f"model-{number}": entry for number in range(250)})) == []


@pytest.mark.parametrize("count", [300, 1000])
def test_too_many_models_are_told_before_a_deploy(count: int) -> None:
    """An event over Lambda's limit is an error at synth, because it would hang the stack."""
    [error] = errors_of(stack_with({f"model-{number}": large_entry() for number in range(count)}))
    assert error.startswith(f"models: {count} entries make an update event of up to ")
    assert "allowed: 262144 bytes" in error
    assert "fewer models" in error
    assert "`cohost push`" in error
    assert "\n" not in error
