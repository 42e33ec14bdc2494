"""The one place that knows how a model is addressed on an endpoint.

Callers say `mdeberta`; the topology decides what InvokeEndpoint needs for that. A wrong name stops here, before any
request is sent, so that a call never reaches another model than the one asked for.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cohost.errors import RoutingError

if TYPE_CHECKING:
    from collections.abc import Iterable

ARCHIVE_SUFFIX = ".tar.gz"


@dataclass(frozen=True, kw_only=True)
class Route:
    """How to reach one model: the endpoint, and the TargetModel below its ModelDataUrl."""

    endpoint_name: str
    target_model: str

    def arguments(self) -> dict[str, str]:
        """The keyword arguments that InvokeEndpoint takes for this route (API reference: InvokeEndpoint)."""
        return {"EndpointName": self.endpoint_name, "TargetModel": self.target_model}


def target_model(name: str) -> str:
    """The TargetModel of a model on a multi-model endpoint: the path of its archive below ModelDataUrl."""
    return name + ARCHIVE_SUFFIX


def find_route(*, endpoint_name: str, topology: str, model: str, known: Iterable[str]) -> Route:
    """The route to a model by its name in the catalog.

    Raises:
        RoutingError: no model of that name is deployed, or this version cannot address models in the topology.
    """
    if topology != "multi-model":
        msg = (
            f"endpoint {endpoint_name!r} has the topology {topology!r}; allowed: multi-model; fix: use the version of "
            "lmi-cohost that deployed it"
        )
        raise RoutingError(msg)
    names = sorted(known)
    if model not in names:
        raise RoutingError(_unknown(endpoint_name, model, names))
    return Route(endpoint_name=endpoint_name, target_model=target_model(model))


def _unknown(endpoint_name: str, model: str, names: list[str]) -> str:
    if model.removesuffix(ARCHIVE_SUFFIX) in names:
        hint = f"say {model.removesuffix(ARCHIVE_SUFFIX)!r}, without {ARCHIVE_SUFFIX}"
    elif close := difflib.get_close_matches(model.casefold(), names, n=1, cutoff=0.6):
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = "name one of these, or add the model to the catalog and deploy or push it"
    return (
        f"model {model!r} is not on endpoint {endpoint_name!r}; allowed: {', '.join(names) or 'none yet'}; fix: {hint}"
    )
