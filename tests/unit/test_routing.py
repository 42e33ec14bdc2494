"""The arguments that name a model on either topology, and the errors for a wrong name or argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import RoutingError
from cohost.routing import Route, addresses, component_name, find_route, target_model

if TYPE_CHECKING:
    from collections.abc import Callable

KNOWN = ("mdeberta", "minilm", "nli")


def route(model: str, topology: str = "multi-model", component: str | None = None) -> Route:
    """The route on an endpoint with three models."""
    return find_route(
        endpoint_name="lmi-cohost", topology=topology, model=model, known=KNOWN, inference_component_name=component
    )


def component_route(model: str) -> Route:
    """The route on an endpoint whose component serves three models."""
    return route(model, "scale-to-zero", "lmi-cohost-models")


def test_model_on_a_multi_model_endpoint_is_its_archive() -> None:
    """Callers say the name; the service hears the path below ModelDataUrl."""
    assert route("mdeberta").arguments() == {"EndpointName": "lmi-cohost", "TargetModel": "mdeberta.tar.gz"}
    assert route("nli").target_model == target_model("nli") == "nli.tar.gz"


def test_model_in_a_component_is_named_in_the_attributes() -> None:
    """A call of a component's model has the component's name and `model_name` in the attributes."""
    found = component_route("mdeberta")

    assert found.target_model is None
    assert found.arguments() == {
        "EndpointName": "lmi-cohost",
        "InferenceComponentName": "lmi-cohost-models",
        "CustomAttributes": "model_name=mdeberta",
    }


@pytest.mark.parametrize(("model", "name"), [("xlmr-large", "xlmr_large"), ("a-b-c", "a_b_c"), ("Ab", "Ab")])
def test_model_in_a_component_is_named_as_the_server_names_it(model: str, name: str) -> None:
    """A component's model is called by the server's name, because the catalog's can be a 404 (recorded: 29)."""
    found = find_route(
        endpoint_name="e", topology="scale-to-zero", model=model, known=[model], inference_component_name="c"
    )

    assert found.arguments()["CustomAttributes"] == f"model_name={name}"
    assert found.command_options()[-1] == f"model_name={name}"
    assert addresses("scale-to-zero", [model]) == {model: name}


def test_archive_of_its_own_keeps_the_catalog_s_name() -> None:
    """A model with its own archive is called by the catalog's name."""
    assert addresses("multi-model", ["a-b"]) == {"a-b": "a-b.tar.gz"}
    assert addresses("inference-components", ["a-b"]) == {"a-b": "a-b"}


def test_a_route_can_be_pasted_into_a_shell() -> None:
    """The printed example call has the client's arguments."""
    assert route("nli").command_options() == ["--endpoint-name", "lmi-cohost", "--target-model", "nli.tar.gz"]
    assert component_route("nli").command_options() == [
        *("--endpoint-name", "lmi-cohost", "--inference-component-name", "lmi-cohost-models"),
        *("--custom-attributes", "model_name=nli"),
    ]


def test_outputs_say_what_stands_for_each_model() -> None:
    """The stack's outputs have the addresses that a route sends."""
    assert addresses("multi-model", ["nli"]) == {"nli": "nli.tar.gz"}
    assert addresses("scale-to-zero", ["nli"]) == {"nli": "nli"}
    assert component_name("lmi-cohost") == "lmi-cohost-models"


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("NLI", "'nli'"),
        ("mdebarta", "'mdeberta'"),
        ("nli.tar.gz", "'nli'"),
        ("../nli", "'nli'"),
        ("", "one of these"),
        ("whisper-large", "one of these"),
    ],
)
@pytest.mark.parametrize("find", [route, component_route])
def test_unknown_name_lists_the_known_ones(find: Callable[[str], Route], model: str, hint: str) -> None:
    """An unknown model name is rejected with the known ones before a request."""
    with refused("model-not-deployed", "model", kind=RoutingError) as caught:
        find(model)

    assert caught.value.allowed == "mdeberta, minilm, nli"
    assert hint in caught.value.fix


def test_the_component_is_no_model() -> None:
    """A component's name is not accepted as a model, because it serves several."""
    with refused("model-not-deployed", "model") as caught:
        component_route("lmi-cohost-models")
    assert "inference component" in caught.value.fix


def test_a_component_takes_no_pushed_model() -> None:
    """A pushed model is rejected for a component, because its archive has all models and changes by a deploy."""
    with refused("model-not-deployed") as caught:
        component_route("whisper-large")
    assert "push" not in caught.value.fix


def test_topology_of_another_version_is_refused() -> None:
    """An endpoint that this version cannot address is not guessed at."""
    with refused("topology-unknown", "endpoint lmi-cohost", kind=RoutingError):
        route("nli", topology="serverless")


def test_topology_and_component_belong_together() -> None:
    """A component is required by one topology and rejected by the other."""
    with refused("component-name-missing", "inference_component_name", kind=RoutingError) as caught:
        route("nli", "scale-to-zero")
    assert "'lmi-cohost-models'" in caught.value.fix
    with refused("component-name-unused", "inference_component_name", kind=RoutingError):
        route("nli", "multi-model", "x")


def test_the_other_topology_s_argument_is_named() -> None:
    """The error for an argument of the other topology names the right argument."""
    with refused("address-of-other-topology", "target_model", kind=RoutingError) as caught:
        component_route("nli").check_given(target_model="nli.tar.gz")
    assert caught.value.allowed == "inference_component_name 'lmi-cohost-models'"

    with refused("address-of-other-topology", "inference_component_name") as caught:
        route("nli").check_given(inference_component_name="lmi-cohost-models")
    assert caught.value.allowed == "target_model 'nli.tar.gz'"


def test_a_way_that_leads_elsewhere_is_refused() -> None:
    """Two arguments that name different models are rejected, because one of the two would be called."""
    with refused("address-of-other-model", "target_model", kind=RoutingError):
        route("nli").check_given(target_model="mini.tar.gz")
    with refused("address-of-other-model", "inference_component_name"):
        component_route("nli").check_given(inference_component_name="x")
    route("nli").check_given(target_model="nli.tar.gz")
    component_route("nli").check_given(inference_component_name="lmi-cohost-models")


def test_a_caller_s_attributes_go_beside_the_model() -> None:
    """The caller's custom attributes reach the container on either topology."""
    assert component_route("nli").arguments("trace=abc")["CustomAttributes"] == "trace=abc;model_name=nli"
    assert route("nli").arguments("trace=abc")["CustomAttributes"] == "trace=abc"


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ("a b", "attributes-not-ascii"),
        ("trace=안녕", "attributes-not-ascii"),
        ("a\r\nb", "attributes-not-ascii"),
        ("trace=a;model_name=mini", "attributes-name-model"),
        ("MODEL_NAME=mini", "attributes-name-model"),
        ("x" * 1010, "attributes-too-long"),
    ],
)
def test_attributes_that_cannot_be_sent_are_told(attributes: str, code: str) -> None:
    """Custom attributes that cannot be sent, or name another model, are rejected before any request."""
    with refused(code, "custom_attributes", kind=RoutingError):
        component_route("nli").arguments(attributes)


def test_archive_named_by_its_content_comes_from_the_outputs() -> None:
    """The TargetModel of the CPU design is read from the stack's outputs."""
    found = find_route(
        endpoint_name="cpu", topology="cpu-onnx", model="nli", known={"nli": "5f1e.tar.gz", "minilm": "0a0b.tar.gz"}
    )
    assert found.arguments() == {"EndpointName": "cpu", "TargetModel": "5f1e.tar.gz"}
    found.check_given(target_model="5f1e.tar.gz")


def test_model_with_a_component_of_its_own_is_that_component() -> None:
    """A call of a model with its own component has no model_name, because the container has one model."""
    found = route("nli", "inference-components")
    assert found.arguments() == {"EndpointName": "lmi-cohost", "InferenceComponentName": "lmi-cohost-nli"}
    assert found.arguments("trace=1")["CustomAttributes"] == "trace=1"
    with refused("model-not-deployed") as caught:
        route("minilmm", "inference-components")
    assert "'minilm'" in caught.value.fix
