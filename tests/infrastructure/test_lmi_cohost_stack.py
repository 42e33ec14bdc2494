"""The stack as a whole: outputs, tags, and its changes with the catalog."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from synthesis import ROOT, make_catalog, make_stack, only, template_of

from cohost.catalog_file import load_catalog
from cohost.endpoint.stack_outputs import STACK_TAG
from cohost.errors import ImageError

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog

NLI = {"model_id": "org/nli", "task": "text-classification"}
MINI = {"model_id": "org/mini", "task": "feature-extraction"}
NAMES_OF_RIGHTS = ("ServiceToken", "ecr:GetAuthorizationToken")


def differing(before: dict[str, Any], after: dict[str, Any], path: str = "") -> set[str]:
    """The paths at which two templates differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {
            found
            for key in before.keys() | after.keys()
            for found in differing(before.get(key), after.get(key), f"{path}/{key}")  # type: ignore[arg-type]
        }
    return set() if before == after else {path}


def outputs_of(template: dict[str, Any]) -> dict[str, Any]:
    """The outputs' values by name."""
    return {name: output["Value"] for name, output in template["Outputs"].items()}


def test_outputs_say_how_to_call(product: dict[str, Any]) -> None:
    """The outputs have all that a client needs, under fixed names."""
    store_id, _ = only(product, "Custom::LmiModelStore")
    bucket_id, _ = only(product, "AWS::S3::Bucket")
    outputs = outputs_of(product)
    models, example = json.loads(outputs.pop("Models")), outputs.pop("ExampleCall")
    outputs = {name: value for name, value in outputs.items() if not name.startswith(("Cost", "Alarm"))}
    assert outputs == {
        "EndpointName": "lmi-cohost",
        "BucketName": {"Ref": bucket_id},
        "Prefix": "encoder-serving/lmi/04-lmi/",
        "Generation": {"Fn::GetAtt": [store_id, "Generation"]},
        "ModelDataUrl": {"Fn::GetAtt": [store_id, "ModelDataUrl"]},
        "Region": "us-east-1",
        "Topology": "multi-model",
        "Kinds": json.dumps(dict.fromkeys(models, "stock/text-classification")),
    }
    assert models == {
        "mdeberta": "mdeberta.tar.gz",
        "minilm": "minilm.tar.gz",
        "xlmr-large": "xlmr-large.tar.gz",
    }
    assert example.startswith("aws sagemaker-runtime invoke-endpoint --region us-east-1 --endpoint-name lmi-cohost ")


@pytest.mark.parametrize(
    ("task", "keys"),
    [("text-classification", {"inputs"}), ("zero-shot-classification", {"inputs", "parameters"})],
)
def test_example_call_can_be_pasted(task: str, keys: set[str]) -> None:
    """The output ExampleCall is one shell line with a body that the model's task accepts."""
    catalog = make_catalog(models={"nli": {"model_id": "org/nli", "task": task}})
    arguments = shlex.split(outputs_of(template_of(make_stack(catalog)))["ExampleCall"])
    options = dict(zip(arguments[3::2], arguments[4::2], strict=False))
    assert options["--target-model"] == "nli.tar.gz"
    assert set(json.loads(options["--body"])) == keys


def test_same_catalog_gives_the_same_template(product_catalog: Catalog, product: dict[str, Any]) -> None:
    """A second synth of a catalog gives the same template."""
    assert template_of(make_stack(product_catalog)) == product


def test_tags_are_on_resources_and_on_the_stack(product: dict[str, Any]) -> None:
    """Resources and stack have the catalog's tags."""
    for kind in ("AWS::SageMaker::Endpoint", "AWS::SageMaker::Model", "AWS::S3::Bucket", "AWS::Lambda::Function"):
        _, resource = only(product, kind)
        assert {"Key": "project", "Value": "lmi-cohost"} in resource["Properties"]["Tags"], kind
    assert make_stack(make_catalog(tags={"team": "search"})).tags.tag_values() == {"team": "search"}


def test_what_a_clean_up_looks_for_names_its_stack(product: dict[str, Any]) -> None:
    """Resources have the tag of their stack, except where a new tag could move a deployed endpoint."""
    own = {"Key": STACK_TAG, "Value": "LmiCohostStack"}
    tagged = {
        kind: own in only(product, kind)[1]["Properties"].get("Tags", [])
        for kind in (
            "AWS::SageMaker::Endpoint",
            "AWS::S3::Bucket",
            "AWS::SageMaker::EndpointConfig",
            "AWS::SageMaker::Model",
        )
    }
    assert list(tagged.values()) == [True, True, False, False], tagged
    assert make_stack(make_catalog(tags={})).tags.tag_values() == {}


def test_no_action_is_allowed_or_denied_by_service_wildcard(product: dict[str, Any]) -> None:
    """The template has no action like `s3:*`."""
    assert re.findall(r'"[a-z0-9-]+:\*"', json.dumps(product)) == []


def test_template_holds_no_secret(product: dict[str, Any]) -> None:
    """The template contains no token, secret or password, and has no parameter for one."""
    text = json.dumps(product)
    for name in NAMES_OF_RIGHTS:
        text = text.replace(name, "")
    assert re.findall(r"token|secret|password|credential", text, re.IGNORECASE) == []


def test_template_asks_nothing_of_the_account_but_its_bootstrap(product: dict[str, Any]) -> None:
    """The template has no parameter to fill in, and no metadata resource that reports usage to AWS."""
    assert set(product["Parameters"]) == {"BootstrapVersion"}
    assert "CDKMetadata" not in product["Resources"]


def test_another_instance_type_keeps_the_endpoint_and_its_name() -> None:
    """Another instance type replaces only the endpoint config, whose name CloudFormation generates."""
    # GIVEN
    before = template_of(make_stack(make_catalog()))
    # WHEN
    after = template_of(make_stack(make_catalog(endpoint={"instance_type": "ml.g4dn.xlarge"})))
    # THEN
    config_id, _ = only(before, "AWS::SageMaker::EndpointConfig")
    changed = {path for path in differing(before, after) if not path.startswith("/Outputs/Cost")}
    assert changed == {f"/Resources/{config_id}/Properties/ProductionVariants"}


TELLING = {"/Outputs/Models/Value", "/Outputs/Kinds/Value"}


def test_added_model_touches_archives_and_outputs_only() -> None:
    """A new model changes neither SageMaker model, endpoint config nor endpoint."""
    # GIVEN
    before = template_of(make_stack(make_catalog(models={"nli": NLI})))
    # WHEN
    after = template_of(make_stack(make_catalog(models={"nli": NLI, "mini": MINI})))
    # THEN
    store_id, _ = only(before, "Custom::LmiModelStore")
    assert differing(before, after) == {f"/Resources/{store_id}/Properties/Models/mini", *TELLING}


def test_changed_setting_shows_as_that_models_line() -> None:
    """`cdk diff` names the model and the key, and nothing else."""
    # GIVEN
    before = template_of(make_stack(make_catalog(models={"nli": NLI, "mini": MINI})))
    # WHEN
    after = template_of(make_stack(make_catalog(models={"nli": NLI | {"batch_size": 8}, "mini": MINI})))
    # THEN
    store_id, _ = only(before, "Custom::LmiModelStore")
    assert differing(before, after) == {f"/Resources/{store_id}/Properties/Models/nli/batch_size"}


def test_new_endpoint_name_moves_the_log_group_with_it() -> None:
    """Another endpoint name gives the log group that SageMaker writes to for it."""
    template = template_of(make_stack(make_catalog(endpoint={"name": "other"})))
    assert "/aws/sagemaker/Endpoints/other" in json.dumps(template["Resources"])
    assert outputs_of(template)["EndpointName"] == "other"


def test_region_decides_registry_and_partition() -> None:
    """The image comes from the region's registry, under its partition's domain."""
    template = template_of(make_stack(make_catalog(), region="cn-northwest-1"))
    _, model = only(template, "AWS::SageMaker::Model")
    assert model["Properties"]["PrimaryContainer"]["Image"].startswith(
        "727897471807.dkr.ecr.cn-northwest-1.amazonaws.com.cn/djl-inference:"
    )


def test_unknown_region_stops() -> None:
    """A region without a known image registry fails the synth with a message that names the fix."""
    with refused("region-unknown", "region", kind=ImageError):
        make_stack(make_catalog(), region="eu-central-9")


def test_unknown_region_is_open_to_ones_own_image() -> None:
    """A full image URI is accepted in a region without a known registry."""
    uri = "123456789012.dkr.ecr.eu-central-9.amazonaws.com/lmi:1"
    template = template_of(make_stack(make_catalog(endpoint={"image_uri": uri}), region="eu-central-9"))
    _, model = only(template, "AWS::SageMaker::Model")
    assert model["Properties"]["PrimaryContainer"]["Image"] == uri


def test_unreadable_image_stops() -> None:
    """An image that cannot be parsed is rejected with an example."""
    with refused("image-tag-unknown", "image", kind=ImageError):
        make_stack(make_catalog(endpoint={"image": "djl-inference:latest"}))


def annotations_of(catalog: Catalog, kind: str) -> list[str]:
    """The stack's annotations of a kind, "error" or "warning"."""
    metadata = make_stack(catalog).node.metadata
    return [entry.data for entry in metadata if entry.type == f"aws:cdk:{kind}"]


def test_misfit_is_an_error_annotation() -> None:
    """An image that cannot serve archives is an error annotation of the stack."""
    catalog = make_catalog(endpoint={"image": "vllm:0.26.0-gpu-py312-cu130-ubuntu22.04-sagemaker"})
    errors = annotations_of(catalog, "error")
    assert [error.partition(" ")[0] for error in errors] == ["endpoint.image:", "endpoint.image:"]
    assert all("; allowed: " in error and "; fix: " in error for error in errors)


def test_doubtful_settings_are_warnings() -> None:
    """Settings that may work cause a warning instead of an error, and the catalog can acknowledge each by its id."""
    catalog = make_catalog(
        endpoint={"instance_type": "ml.g6.xlarge"}, models={"nli": NLI | {"properties": {"option.unheard_of": "1"}}}
    )
    warnings = annotations_of(catalog, "warning")
    assert "[ack: lmi-cohost:instance-multi-model]" in warnings[0]
    assert "models.nli.properties.option.unheard_of" in warnings[-1]


def test_product_has_neither_errors_nor_warnings() -> None:
    """The default catalog with its profiles causes neither errors nor warnings."""
    loaded = load_catalog(ROOT / "model_configs/encoders.yaml")
    metadata = make_stack(loaded.catalog, profiles=loaded.profiles).node.metadata
    assert [entry.data for entry in metadata if entry.type in {"aws:cdk:error", "aws:cdk:warning"}] == []


def test_models_without_profiles_are_warned_of(product_catalog: Catalog) -> None:
    """A stack without profiles has a warning that memory was not checked."""
    [warning] = annotations_of(product_catalog, "warning")
    assert "[ack: lmi-cohost:memory-unknown]" in warning
