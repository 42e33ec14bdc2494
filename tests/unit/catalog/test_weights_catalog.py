"""The catalog's settings for weights, tokens and networks: allowed and rejected values, and their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes.refusals import refused
from pydantic import ValidationError

from cohost.archives.errors import ArtifactError
from cohost.catalog.checks import check_catalog
from cohost.catalog.faults import faults_of
from cohost.catalog.models import Catalog
from cohost.catalog.serving import files_of, properties_of
from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError
from cohost.hardware.images import parse_image

if TYPE_CHECKING:
    from pathlib import Path

REVISION = "a" * 40
NLI = {"model_id": "org/nli", "revision": REVISION, "task": "text-classification"}
IMAGE = "djl-inference:0.36.0-lmi26.0.0-cu130"
ENDPOINT = {"name": "lmi-cohost", "instance_type": "ml.g5.xlarge", "image": IMAGE}
VPC = {"vpc": "vpc-0a1b2c3d", "subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}


def catalog(*, models: dict[str, dict[str, Any]] | None = None, **rest: Any) -> Catalog:
    """Return a catalog of one pinned model with these keys."""
    return Catalog.model_validate({"endpoint": ENDPOINT, "models": models or {"nli": NLI}, **rest})


def fault(**keys: Any) -> tuple[str, str]:
    """Code and field of the only fault of a catalog."""
    with pytest.raises(ValidationError) as caught:
        catalog(**keys)
    fields = {".".join(map(str, error["loc"])) for error in caught.value.errors()}
    (found,) = faults_of(caught.value, Catalog, fields)
    return found.code, found.field


def test_weights_come_from_the_hub_unless_said_otherwise() -> None:
    """Without `weights` the archive has the id and revision of the Hub."""
    entry = catalog().models["nli"]
    assert entry.from_hub
    assert properties_of(entry)["option.model_id"] == "org/nli"
    assert properties_of(entry)["option.revision"] == REVISION


def test_pushed_weights_are_an_address_with_the_revision_in_it() -> None:
    """The address of pushed weights contains the revision, so `cdk diff` shows a new one."""
    entry = catalog(weights="s3").models["nli"]
    assert not entry.from_hub
    assert properties_of(entry)["option.model_id"] == f"s3://{{WeightsBucket}}/weights/org/nli/{REVISION}/"
    assert "option.revision" not in properties_of(entry)


def test_weights_in_the_archive_are_named_nowhere() -> None:
    """With `weights: archive` no property names the weights, because the server finds them beside the properties."""
    entry = catalog(weights="archive").models["nli"]
    assert (entry.pushed, entry.from_hub) == (True, False)
    assert {"option.model_id", "option.revision"} & properties_of(entry).keys() == set()


def test_a_model_decides_for_itself() -> None:
    """`weights` at a model overrides the setting of the catalog, and an own s3:// address stays."""
    made = catalog(
        weights="s3",
        models={
            "nli": NLI,
            "hub": NLI | {"weights": "hub"},
            "own": {"model_id": "s3://mine/nli/", "task": "text-classification"},
        },
    )
    assert {name: entry.from_hub for name, entry in made.models.items()} == {"nli": False, "hub": True, "own": False}
    assert properties_of(made.models["own"])["option.model_id"] == "s3://mine/nli/"
    assert not catalog(models={"nli": NLI | {"weights": "s3"}}).models["nli"].from_hub


def test_archive_needs_the_bucket() -> None:
    """Packing an archive of pushed weights without the name of the bucket is rejected."""
    entry = catalog(weights="s3").models["nli"]
    text = files_of(entry, parse_image(IMAGE), "bucket-of-ours")["serving.properties"].decode()
    assert f"option.model_id=s3://bucket-of-ours/weights/org/nli/{REVISION}/\n" in text
    with refused("weights-bucket-missing", "WeightsBucket", kind=ArtifactError):
        files_of(entry, parse_image(IMAGE))


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ({"weights": "s3", "revision": None}, "revision-missing"),
        ({"weights": "s3", "model_id": "s3://mine/nli/", "revision": None}, "settings-conflict"),
        ({"model_id": "s3://mine/nli/"}, "settings-conflict"),
        ({"allow_pickle": True}, "settings-conflict"),
        ({"gated": True}, "settings-conflict"),
    ],
)
def test_what_cannot_work_is_refused(model: dict[str, Any], code: str) -> None:
    """Settings of weights, revision, pickle and gated that do not fit together are rejected."""
    assert fault(models={"nli": NLI | model}) == (code, "models.nli")


def test_gated_model_can_be_pushed() -> None:
    """A gated model is accepted with `weights: s3`, because only the push needs the token."""
    assert catalog(weights="s3", models={"nli": NLI | {"gated": True}}).models["nli"].gated


@pytest.mark.parametrize("source", ["secretsmanager:hub/token", "ssm:/hub/token"])
def test_token_is_named_by_its_place(source: str) -> None:
    """The catalog has the location of the token, and not the token."""
    assert catalog(hub_token=source).hub_token == source


@pytest.mark.parametrize("token", ["hf_abcdefghijkl", "hf_abcdefghijkl:", "s3:hf_abcdefghijkl", 5])
def test_token_itself_is_refused_and_not_shown(token: object, tmp_path: Path) -> None:
    """A token in the catalog is rejected and not printed."""
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump({"endpoint": ENDPOINT, "hub_token": token, "models": {"nli": NLI}}))
    code = "token-source-unknown" if isinstance(token, str) else "value-not-allowed"
    with refused(code, "hub_token", kind=CatalogError) as caught:
        load_catalog(path)
    assert "hf_abc" not in str(caught.value)


@pytest.mark.parametrize("name", ["s3://bucket", "Bucket", "ab", "-bucket"])
def test_weights_bucket_is_a_name(name: str) -> None:
    """`storage.weights_bucket` must be a name, and neither an address nor a path."""
    assert fault(storage={"weights_bucket": name}) == ("name-not-allowed", "storage.weights_bucket")


def test_key_of_weights_belongs_to_a_bucket_of_the_users_own() -> None:
    """`weights_kms_key` is rejected without `weights_bucket`, because the stack's bucket has another key."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    with refused("setting-unused", "storage.weights_kms_key", kind=CatalogError):
        check_catalog(catalog(storage={"weights_kms_key": key}))
    check_catalog(catalog(storage={"weights_kms_key": key, "weights_bucket": "mine"}))


def test_network_is_taken_as_given() -> None:
    """A synth uses the ids of the network without a lookup."""
    network = catalog(network={**VPC, "s3_endpoint": "given"}).network
    assert network is not None
    assert (network.vpc, network.in_vpc, network.isolation) == ("vpc-0a1b2c3d", True, False)


@pytest.mark.parametrize(
    ("network", "code", "field"),
    [
        ({}, "value-empty", ""),
        ({"vpc": "vpc-0a1b2c3d"}, "field-missing", ""),
        ({**VPC, "security_groups": []}, "field-missing", ""),
        ({"isolation": True, "internet": True}, "settings-conflict", ""),
        ({"isolation": True, "route_tables": ["rtb-0a1b2c3d"]}, "settings-conflict", ""),
        ({**VPC, "s3_endpoint": "given", "route_tables": ["rtb-0a1b2c3d"]}, "settings-conflict", ""),
        ({**VPC, "vpc": "vpc-1"}, "value-not-allowed", ".vpc"),
        ({**VPC, "subnets": ["subnet-0a1b2c3d"] * 17}, "value-not-allowed", ".subnets"),
    ],
)
def test_half_a_network_is_refused(network: dict[str, Any], code: str, field: str) -> None:
    """Subnets without security groups, or the reverse, and numbers over SageMaker's limits are rejected."""
    assert fault(network=network) == (code, f"network{field}")
