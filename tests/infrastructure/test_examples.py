"""All catalogs of model_configs are linted, checked and priced as for a deploy.

`make examples` synthesises each of them, `make test` the product's own.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from cfnlint.api import ManualArgs, lint_file
from deployed import identities, read_recorded, replacements
from synthesis import FLAGS, ROOT

from cohost.catalog_file import load_catalog
from cohost.deploy.cleanup.resource_types import KINDS
from cohost.deploy.cleanup.stacks import DESCRIPTION
from cohost.deploy.rights.assembly import caller_of, read_stacks
from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.policies import POLICY_LIMIT, cloudformation_policies, size
from cohost.designs.onnx.archive import archive_file, note_file
from cohost.designs.onnx.recipe import cpu_design, recipe_for
from cohost.forecast.plan.profiles import SUFFIX, load_profiles, profiles_path
from cohost.forecast.pricing.designs import compare
from cohost.forecast.pricing.price_list import load_prices
from stacks.application import add_stacks

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.catalog.models import Catalog

FOLDER = ROOT / "model_configs/examples"
# Policies go with what they belong to; what custom resources make lies in buckets and groups of the stack.
GOES_WITH_ANOTHER = {
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::IAM::Policy",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "Custom::LmiEndOfLife",
    "Custom::LmiModelStore",
}
EXAMPLES = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(SUFFIX))
PRODUCT = ROOT / "model_configs/encoders.yaml"
OTHERS = [ROOT / "model_configs" / f"{name}.yaml" for name in ("offline", "offline-scale-to-zero")]
OFFLINE = [path for path in EXAMPLES if path.stem.startswith("offline")]
REGION = "us-east-1"


def ready_to_deploy(catalog: Catalog, folder: Path) -> Catalog:
    """Return the catalog with archives of its CPU design, of which a synth reads only the checksums."""
    if catalog.designs is None or catalog.designs.cpu_onnx is None:
        return catalog
    onnx = cpu_design(catalog).model_copy(update={"archives": str(folder)})
    ready = catalog.model_copy(update={"designs": catalog.designs.model_copy(update={"cpu_onnx": onnx})})
    for name in catalog.models:
        archive_file(folder, name).write_bytes(name.encode())
        sha256 = hashlib.sha256(name.encode()).hexdigest()
        note = {"recipe": recipe_for(name, ready).as_data("handler"), "serving": "handler", "sha256": sha256}
        note_file(folder, name).write_text(json.dumps(note))
    return ready


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, id=path.stem, marks=() if path == PRODUCT else pytest.mark.exhaustive)
        for path in (PRODUCT, *OTHERS, *EXAMPLES)
    ],
)
def catalog_file(request: pytest.FixtureRequest) -> Path:
    """Return the file of one catalog after another."""
    file: Path = request.param
    return file


@pytest.fixture(scope="module")
def example(catalog_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Path, list[str]]:
    """Return a catalog, its application's output folder, and the warnings of the synth."""
    loaded = load_catalog(catalog_file)
    ready = ready_to_deploy(loaded.catalog, tmp_path_factory.mktemp("onnx"))
    app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=str(tmp_path_factory.mktemp("assembly")))
    add_stacks(app, replace(loaded, catalog=ready), cdk.Environment(region=REGION))
    assembly = app.synth()
    told = [f"{m.level}: {m.entry.data}" for stack in assembly.stacks for m in stack.messages]
    return loaded.catalog, app_folder(assembly), told


def app_folder(assembly: Any) -> Path:
    """Return the folder of a cloud assembly."""
    return type(ROOT)(assembly.directory)


def templates(folder: Path) -> dict[str, Any]:
    """Return the template of each stack by its name."""
    files = folder.glob("*.template.json")
    return {file.name.removesuffix(".template.json"): json.loads(file.read_text()) for file in files}


def test_an_example_passes_every_check(example: tuple[Catalog, Path, list[str]]) -> None:
    """Each example passes cdk-nag and the project's checks, except for prices that AWS does not publish."""
    _, folder, told = example
    assert json.loads((folder / "validation-report.json").read_text())["pluginReports"] == []
    assert [message for message in told if "price-unknown" not in message] == []


def test_an_example_passes_the_linter(example: tuple[Catalog, Path, list[str]]) -> None:
    """The stacks of each example have neither errors nor warnings of cfn-lint."""
    _, folder, _ = example
    files = sorted(folder.glob("*.template.json"))
    assert files
    for file in files:
        assert lint_file(file, config=ManualArgs(regions=[REGION])) == [], file.name


def test_an_example_is_priced(example: tuple[Catalog, Path, list[str]]) -> None:
    """The stack of each example and `cohost cost` state the same price per hour, or "unknown"."""
    catalog, folder, _ = example
    per_hour = {
        stack: template["Outputs"]["CostPerHourUsd"]["Value"]
        for stack, template in templates(folder).items()
        if "CostPerHourUsd" in template.get("Outputs", {})
    }
    (own, *_) = compare(catalog, load_prices(), REGION, busy_hours=24)
    assert own.per_hour is not None
    least, _, most = per_hour.pop("LmiCohostStack").partition("..")
    # The output has three decimal places.
    assert float(least) - 0.0005 <= own.per_hour <= float(most or least) + 0.0005
    assert all(value == "unknown" or float(value) > 0 for value in per_hour.values()), per_hour


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_model_of_an_example_is_pinned_and_planned(path: Path) -> None:
    """Each model of an example has a revision and its profile, except models of this machine's hub."""
    catalog = load_catalog(path).catalog
    profiles = load_profiles(profiles_path(path))
    for name, entry in catalog.models.items():
        assert entry.model_id in profiles, name
        if path not in OFFLINE:
            assert entry.revision is not None, name
            assert profiles[entry.model_id].revision == entry.revision, name


def test_a_model_has_one_revision_and_one_profile_in_all_examples() -> None:
    """All examples with the same model agree on its revision and its profile."""
    known: dict[str, Any] = {}
    for path in (*EXAMPLES, PRODUCT):
        for model_id, profile in load_profiles(profiles_path(path)).items():
            if path not in OFFLINE:
                assert known.setdefault(model_id, profile) == profile, f"{path.name}: {model_id}"


def test_every_example_is_listed_in_the_documents() -> None:
    """docs/examples.md has a sentence about each example."""
    text = (ROOT / "docs/examples.md").read_text()
    for path in EXAMPLES:
        assert re.search(rf"^\| \[`{re.escape(path.name)}`\]\(.*\) \| .+ \|$", text, re.MULTILINE), path.name


def test_a_clean_up_knows_the_stacks_and_all_that_is_in_them(example: tuple[Catalog, Path, list[str]]) -> None:
    """`cohost cleanup` recognises the stacks of each example and knows all of their resource types."""
    _, folder, _ = example
    for name, template in templates(folder).items():
        assert template["Description"].startswith(DESCRIPTION), name
        types = {resource["Type"] for resource in template["Resources"].values()}
        assert types <= KINDS.keys() | GOES_WITH_ANOTHER, name


def test_a_deployed_stack_updates_in_place(catalog_file: Path, example: tuple[Catalog, Path, list[str]]) -> None:
    """Each stack keeps the recorded logical ids, types and names; new resources are listed with a reason."""
    recorded = read_recorded()
    now = templates(example[1])
    for stack, then in recorded.stacks.get(catalog_file.stem, {}).items():
        found = identities(now[stack], recorded.create_only)
        assert replacements(then, found) == {}, stack
        assert found.keys() - then.keys() <= recorded.added.keys(), stack


def test_every_recorded_catalog_is_still_shipped() -> None:
    """Each recorded catalog exists, so a renamed catalog is not left out of the comparison."""
    assert read_recorded().stacks.keys() <= {path.stem for path in (PRODUCT, *OTHERS, *EXAMPLES)}


@pytest.mark.parametrize(
    ("now", "change"),
    [
        ({}, "AWS::S3::Bucket is gone"),
        ({"Other": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "a"}}}, "AWS::S3::Bucket is gone"),
        ({"Bucket": {"Type": "AWS::S3::AccessPoint"}}, "AWS::S3::Bucket is AWS::S3::AccessPoint now"),
        ({"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "b"}}}, "'b'} now"),
        ({"Bucket": {"Type": "AWS::S3::Bucket"}}, "{} now"),
    ],
)
def test_a_resource_that_would_be_replaced_is_found(now: dict[str, Any], change: str) -> None:
    """The comparison finds a missing or renamed id, another type, and a changed or missing name."""
    then = {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "a"}}}
    found = replacements(then, identities({"Resources": now}, {"AWS::S3::Bucket": ["BucketName"]}))
    assert found["Bucket"].endswith(change)


def test_other_properties_may_change() -> None:
    """The comparison allows changes of other properties than ids, types and names."""
    now = {
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "a", "Tags": []}},
        "New": {"Type": "A::B::C"},
    }
    create_only = {"AWS::S3::Bucket": ["BucketName"]}
    then = identities(
        {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "a"}}}}, create_only
    )
    assert replacements(then, identities({"Resources": now}, create_only)) == {}


# Actions that take no resource, or whose policies cannot name one (Service Authorization Reference).
ON_EVERYTHING = {
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "application-autoscaling:DescribeScheduledActions",
    "cloudformation:DescribeStacks",
    "cloudformation:ListStacks",
    "cloudwatch:GetMetricData",
    "cloudwatch:GetMetricStatistics",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcEndpoints",
    "ec2:DescribeVpcs",
    "logs:DescribeIndexPolicies",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "pricing:GetProducts",
    "sagemaker:ListEndpointConfigs",
    "sagemaker:ListEndpoints",
    "sagemaker:ListInferenceComponents",
    "sagemaker:ListModels",
    "scheduler:ListSchedules",
    "servicequotas:ListAWSDefaultServiceQuotas",
    "servicequotas:ListServiceQuotas",
    "sns:GetSubscriptionAttributes",
    "sns:SetSubscriptionAttributes",
    "sns:Unsubscribe",
}


def test_catalog_has_least_policies(example: tuple[Catalog, Path, list[str]]) -> None:
    """`cohost rights` knows each resource; each policy is short enough, and names resources wherever one can."""
    catalog, folder, _ = example
    manifest = json.loads((folder / "manifest.json").read_text())
    names = [name for name, one in manifest["artifacts"].items() if one["type"] == "aws:cloudformation:stack"]
    for name in names:
        stacks = read_stacks(folder, name, partition="aws", region=REGION, account="123456789012")
        documents = [*cloudformation_policies(stacks), *caller_of(catalog, stacks).policies(COMMANDS)]
        # A role takes 10 managed policies (IAM and STS quotas).
        assert len(documents) <= 10
        assert all(size(document) <= POLICY_LIMIT for document in documents)
        statements = [statement for document in documents for statement in document["Statement"]]
        wide = {action for one in statements if one["Resource"] == "*" for action in one["Action"]}
        assert wide <= ON_EVERYTHING, name
        assert not any("*" in action for one in statements for action in one["Action"])
