"""Containers in a VPC: the template, and the rejected networks without access to models."""

from __future__ import annotations

from typing import Any

import pytest
from synthesis import make_catalog, make_stack, only, resources, template_of, waits_for

from cohost.catalog.models import Catalog
from constructs_lib.checks.catalog import network_misfits

REVISION = "a" * 40
PUSHED = {"model_id": "org/nli", "revision": REVISION, "task": "text-classification", "weights": "s3"}
HUB = {"model_id": "org/mini", "revision": REVISION, "task": "text-classification"}
VPC = {"vpc": "vpc-0a1b2c3d", "subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}
PLACED = {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}


def catalog(network: dict[str, Any], **models: dict[str, Any]) -> Catalog:
    """Return a catalog with this network and these models."""
    made = make_catalog(models=models or {"nli": PUSHED}).model_dump(by_alias=True, exclude_defaults=True)
    return Catalog.model_validate({**made, "network": network})


def found(network: dict[str, Any], **models: dict[str, Any]) -> dict[str, str]:
    """Return the messages of the misfits by id."""
    return {misfit.name: misfit.message for misfit in network_misfits(catalog(network, **models))}


def test_containers_are_placed_by_ids_alone() -> None:
    """The template has the catalog's ids of subnets and groups, without a lookup, a parameter or an own VPC."""
    template = template_of(make_stack(catalog({**VPC, "s3_endpoint": "given"})))
    _, model = only(template, "AWS::SageMaker::Model")
    assert model["Properties"]["VpcConfig"] == PLACED
    assert "EnableNetworkIsolation" not in model["Properties"]
    assert resources(template, "AWS::EC2::VPCEndpoint") == {}
    assert set(template["Parameters"]) == {"BootstrapVersion"}


def test_without_a_network_nothing_is_placed() -> None:
    """A catalog without `network` gives a template without a VPC."""
    _, model = only(template_of(make_stack(make_catalog())), "AWS::SageMaker::Model")
    assert {"VpcConfig", "EnableNetworkIsolation"} & model["Properties"].keys() == set()


def test_gateway_endpoint_is_made_where_route_tables_are_named() -> None:
    """Named route tables get an S3 gateway endpoint, and the model is created after it."""
    template = template_of(make_stack(catalog({**VPC, "route_tables": ["rtb-0a1b2c3d"]})))
    gateway_id, gateway = only(template, "AWS::EC2::VPCEndpoint")
    properties = gateway["Properties"]
    assert properties["ServiceName"] == "com.amazonaws.us-east-1.s3"
    assert (properties["VpcEndpointType"], properties["VpcId"]) == ("Gateway", "vpc-0a1b2c3d")
    assert properties["RouteTableIds"] == ["rtb-0a1b2c3d"]
    model_id, _ = only(template, "AWS::SageMaker::Model")
    assert waits_for(template, model_id, gateway_id)


def test_components_are_placed_by_the_endpoint_configuration() -> None:
    """The subnets of inference components come from the endpoint config, because no variant names a model."""
    made = catalog({**VPC, "s3_endpoint": "given"}).model_dump(by_alias=True, exclude_defaults=True)
    made["endpoint"]["topology"] = "scale-to-zero"
    template = template_of(make_stack(Catalog.model_validate(made)))
    _, config = only(template, "AWS::SageMaker::EndpointConfig")
    assert config["Properties"]["VpcConfig"] == PLACED


@pytest.mark.parametrize("way", [{"s3_endpoint": "given"}, {"route_tables": ["rtb-0a1b2c3d"]}, {"internet": True}])
def test_weights_in_s3_need_a_way_to_s3(way: dict[str, Any]) -> None:
    """A VPC without an S3 endpoint, route tables or internet access is rejected if weights are in S3."""
    assert found({**VPC, **way}) == {}
    assert "fix: network.route_tables with the subnets' route tables" in found(VPC)["network-s3"]


def test_hub_without_a_way_out_is_refused() -> None:
    """Models from the Hub without internet access are rejected, with the models and the fixes."""
    messages = found({**VPC, "s3_endpoint": "given"}, nli=PUSHED, mini=HUB)
    assert set(messages) == {"network-hub"}
    assert "cannot fetch mini from the Hub" in messages["network-hub"]
    assert "weights: s3, or network.internet: true" in messages["network-hub"]
    assert found({**VPC, "internet": True}, mini=HUB) == {}


def test_isolation_of_archives_without_weights_is_refused() -> None:
    """Network isolation is rejected unless the archives contain the weights."""
    for models in ({"nli": PUSHED}, {"mini": HUB}):
        messages = found({"isolation": True}, **models)
        assert "reaches neither the Hub nor S3" in messages["network-isolation"]
        assert "fix: weights: archive (`cohost weights push`)" in messages["network-isolation"]


def test_isolated_containers_have_their_weights_in_the_archive() -> None:
    """With network isolation the SageMaker model is isolated and its archives contain the weights."""
    made = catalog({"isolation": True}, nli=PUSHED | {"weights": "archive"})
    assert list(network_misfits(made)) == []
    template = template_of(make_stack(made))
    _, model = only(template, "AWS::SageMaker::Model")
    assert model["Properties"]["EnableNetworkIsolation"] is True
    _, store = only(template, "Custom::LmiModelStore")
    assert store["Properties"]["PackedWeights"] == {"nli": f"org/nli@{REVISION}"}
    assert "option.model_id" not in store["Properties"]["Models"]["nli"]


def test_weights_in_archives_need_an_archive_a_model() -> None:
    """`weights: archive` is rejected for scale-to-zero, which has one archive of all models."""
    made = catalog({"isolation": True}, nli=PUSHED | {"weights": "archive"}).model_dump(
        by_alias=True, exclude_defaults=True
    )
    made["endpoint"]["topology"] = "scale-to-zero"
    (misfit,) = network_misfits(Catalog.model_validate(made))
    assert (misfit.name, misfit.level) == ("weights-archive", "error")


def test_refusal_stops_the_synth() -> None:
    """A rejected network fails the synth with an error annotation that has an id."""
    stack = make_stack(catalog({**VPC, "s3_endpoint": "given"}, mini=HUB))
    with pytest.raises(RuntimeError, match=r"ERROR network\.vpc: .*\[lmi-cohost:network-hub\]"):
        template_of(stack)
