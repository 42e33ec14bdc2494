"""How a model is addressed, and what a wrong name is told."""

from __future__ import annotations

import pytest

from cohost.errors import RoutingError
from cohost.routing import Route, find_route, target_model

KNOWN = ("mdeberta", "minilm", "nli")


def route(model: str, topology: str = "multi-model") -> Route:
    """The route on an endpoint with three models."""
    return find_route(endpoint_name="lmi-cohost", topology=topology, model=model, known=KNOWN)


def test_model_on_a_multi_model_endpoint_is_its_archive() -> None:
    """Callers say the name; the service hears the path below ModelDataUrl."""
    assert route("mdeberta").arguments() == {"EndpointName": "lmi-cohost", "TargetModel": "mdeberta.tar.gz"}
    assert target_model("nli") == "nli.tar.gz"


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("NLI", "did you mean 'nli'?"),
        ("mdebarta", "did you mean 'mdeberta'?"),
        ("nli.tar.gz", "say 'nli', without .tar.gz"),
        ("../nli", "did you mean 'nli'?"),
        ("", "name one of these"),
        ("whisper-large", "name one of these"),
    ],
)
def test_unknown_name_lists_the_known_ones(model: str, hint: str) -> None:
    """A wrong name stops before any request, and never becomes a call to another model."""
    with pytest.raises(RoutingError) as caught:
        route(model)

    assert "allowed: mdeberta, minilm, nli" in str(caught.value)
    assert hint in str(caught.value)


def test_topology_of_another_version_is_refused() -> None:
    """An endpoint that this version cannot address is not guessed at."""
    with pytest.raises(RoutingError, match="allowed: multi-model"):
        route("nli", topology="scale-to-zero")
