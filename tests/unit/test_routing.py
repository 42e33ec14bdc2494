"""How a model is addressed on either topology, and what a wrong name or a wrong way is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
    """The service hears the component, and its container the model."""
    found = component_route("mdeberta")

    assert found.target_model is None
    assert found.arguments() == {
        "EndpointName": "lmi-cohost",
        "InferenceComponentName": "lmi-cohost-models",
        "CustomAttributes": "model_name=mdeberta",
    }


@pytest.mark.parametrize(("model", "name"), [("xlmr-large", "xlmr_large"), ("a-b-c", "a_b_c"), ("Ab", "Ab")])
def test_model_in_a_component_is_named_as_the_server_names_it(model: str, name: str) -> None:
    """Recorded (29): by the catalog's name a model with a hyphen is 404, whatever its folder was called."""
    found = find_route(
        endpoint_name="e", topology="scale-to-zero", model=model, known=[model], inference_component_name="c"
    )

    assert found.arguments()["CustomAttributes"] == f"model_name={name}"
    assert found.command_options()[-1] == f"model_name={name}"
    assert addresses("scale-to-zero", [model]) == {model: name}


def test_archive_of_its_own_keeps_the_catalog_s_name() -> None:
    """A multi-model endpoint names the models by its targets, and each component of the comparison serves one."""
    assert addresses("multi-model", ["a-b"]) == {"a-b": "a-b.tar.gz"}
    assert addresses("inference-components", ["a-b"]) == {"a-b": "a-b"}


def test_a_route_can_be_pasted_into_a_shell() -> None:
    """The printed example names the same arguments as the client sends."""
    assert route("nli").command_options() == ["--endpoint-name", "lmi-cohost", "--target-model", "nli.tar.gz"]
    assert component_route("nli").command_options() == [
        *("--endpoint-name", "lmi-cohost", "--inference-component-name", "lmi-cohost-models"),
        *("--custom-attributes", "model_name=nli"),
    ]


def test_outputs_say_what_stands_for_each_model() -> None:
    """A stack writes the same addresses as a route sends."""
    assert addresses("multi-model", ["nli"]) == {"nli": "nli.tar.gz"}
    assert addresses("scale-to-zero", ["nli"]) == {"nli": "nli"}
    assert component_name("lmi-cohost") == "lmi-cohost-models"


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("NLI", "did you mean 'nli'?"),
        ("mdebarta", "did you mean 'mdeberta'?"),
        ("nli.tar.gz", "say 'nli', without .tar.gz"),
        ("../nli", "did you mean 'nli'?"),
        ("", "give the name of one of these as `model`"),
        ("whisper-large", "name one of these"),
    ],
)
@pytest.mark.parametrize("find", [route, component_route])
def test_unknown_name_lists_the_known_ones(find: Callable[[str], Route], model: str, hint: str) -> None:
    """A wrong name stops before any request, and never becomes a call to another model."""
    with pytest.raises(RoutingError) as caught:
        find(model)

    assert "allowed: mdeberta, minilm, nli" in str(caught.value)
    assert hint in str(caught.value)


def test_the_component_is_no_model() -> None:
    """A component's name alone leads to no model, since it serves several."""
    with pytest.raises(RoutingError, match="that is the inference component, which serves all of these"):
        component_route("lmi-cohost-models")


def test_a_component_takes_no_pushed_model() -> None:
    """Its archive holds all models, so the way to add one is a deploy."""
    with pytest.raises(RoutingError, match=r"add the model to the catalog and deploy it$"):
        component_route("whisper-large")


def test_topology_of_another_version_is_refused() -> None:
    """An endpoint that this version cannot address is not guessed at."""
    with pytest.raises(RoutingError, match="allowed: multi-model, scale-to-zero"):
        route("nli", topology="serverless")


def test_topology_and_component_belong_together() -> None:
    """A component is needed by one topology and refused by the other; the argument's name is told."""
    with pytest.raises(RoutingError, match=r"inference_component_name is missing; .* e.g. 'lmi-cohost-models'"):
        route("nli", "scale-to-zero")
    with pytest.raises(RoutingError, match=r"inference_component_name 'x': .* addressed by target_model"):
        route("nli", "multi-model", "x")


def test_the_other_topology_s_argument_is_named() -> None:
    """Whoever gives a component a target model, or the other way round, hears which argument is the right one."""
    with pytest.raises(RoutingError) as caught:
        component_route("nli").check_given(target_model="nli.tar.gz")
    assert "target_model 'nli.tar.gz': endpoint 'lmi-cohost' is no multi-model endpoint" in str(caught.value)
    assert "allowed: inference_component_name 'lmi-cohost-models'" in str(caught.value)

    with pytest.raises(RoutingError) as caught:
        route("nli").check_given(inference_component_name="lmi-cohost-models")
    assert "is a multi-model endpoint, and refuses inference_component_name" in str(caught.value)
    assert "allowed: target_model 'nli.tar.gz'" in str(caught.value)


def test_a_way_that_leads_elsewhere_is_refused() -> None:
    """Two names for one model must agree, or one of them would be called by surprise."""
    with pytest.raises(RoutingError, match=r"target_model 'mini.tar.gz' does not lead to model 'nli'"):
        route("nli").check_given(target_model="mini.tar.gz")
    with pytest.raises(RoutingError, match=r"inference_component_name 'x' does not lead to model 'nli'"):
        component_route("nli").check_given(inference_component_name="x")
    route("nli").check_given(target_model="nli.tar.gz")
    component_route("nli").check_given(inference_component_name="lmi-cohost-models")


def test_a_caller_s_attributes_go_beside_the_model() -> None:
    """A trace reaches the container on either topology."""
    assert component_route("nli").arguments("trace=abc")["CustomAttributes"] == "trace=abc;model_name=nli"
    assert route("nli").arguments("trace=abc")["CustomAttributes"] == "trace=abc"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("a b", "' ' in 'a b'; allowed: visible US-ASCII"),
        ("trace=안녕", "'안' in 'trace=안녕'"),
        ("a\r\nb", "allowed: visible US-ASCII"),
        ("trace=a;model_name=mini", "'model_name=mini' names a model"),
        ("MODEL_NAME=mini", "'MODEL_NAME=mini' names a model"),
        ("x" * 1010, "1025 characters with those of the route; allowed: 1024"),
    ],
)
def test_attributes_that_cannot_be_sent_are_told(attributes: str, message: str) -> None:
    """They stop before any request, and cannot lead the call to another model."""
    with pytest.raises(RoutingError) as caught:
        component_route("nli").arguments(attributes)

    assert message in str(caught.value)
    assert "fix: " in str(caught.value)


def test_archive_named_by_its_content_comes_from_the_outputs() -> None:
    """The CPU design's TargetModel is no model's name, so the stack says it."""
    found = find_route(
        endpoint_name="cpu", topology="cpu-onnx", model="nli", known={"nli": "5f1e.tar.gz", "minilm": "0a0b.tar.gz"}
    )
    assert found.arguments() == {"EndpointName": "cpu", "TargetModel": "5f1e.tar.gz"}
    found.check_given(target_model="5f1e.tar.gz")


def test_model_with_a_component_of_its_own_is_that_component() -> None:
    """Nothing else is in the container, so no attribute names the model."""
    found = route("nli", "inference-components")
    assert found.arguments() == {"EndpointName": "lmi-cohost", "InferenceComponentName": "lmi-cohost-nli"}
    assert found.arguments("trace=1")["CustomAttributes"] == "trace=1"
    with pytest.raises(RoutingError, match="did you mean 'minilm'"):
        route("minilmm", "inference-components")
