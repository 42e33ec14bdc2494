"""Compute the parameters of InvokeEndpoint that address one model, for every topology.

Callers name a model by its name in the catalog, such as `mdeberta`. The topology determines InvokeEndpoint's arguments.
A multi-model endpoint needs a TargetModel. If one inference component serves all models, a call needs that component
and the model's name in CustomAttributes; if each model has its own component, a call needs the model's component. The
designs that the project compares are topologies too: `cpu-onnx` is a multi-model endpoint whose archives are named by
their content, so the archives' names come from the stack's outputs. A wrong model name, or an argument that belongs to
another topology, is rejected before any request is sent, so that no call reaches the wrong model.

DJL Serving 0.36.0 takes the model's name from CustomAttributes, a list separated by `;`, namely from the last attribute
`model_name=…`. DJL Serving ignores the case of an attribute's name and the spaces around the name. The value of
`model_name` is DJL Serving's name of the model, which has `_` where the catalog's name has a hyphen (`server_name`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore import xform_name

from cohost.archives.archive import server_name
from cohost.errors import RoutingError

if TYPE_CHECKING:
    from collections.abc import Iterable

ARCHIVE_SUFFIX = ".tar.gz"
MULTI_MODEL: Final = "multi-model"
SCALE_TO_ZERO: Final = "scale-to-zero"
CPU_ONNX: Final = "cpu-onnx"
INFERENCE_COMPONENTS: Final = "inference-components"
TOPOLOGIES = (MULTI_MODEL, SCALE_TO_ZERO, CPU_ONNX, INFERENCE_COMPONENTS)

COMPONENT_SUFFIX = "-models"
MODEL_NAME = "model_name"

MAX_ATTRIBUTES_LENGTH = 1024
"""The limit of CustomAttributes in visible US-ASCII characters (API reference: InvokeEndpoint)."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """The address of one model: its endpoint, its name in the catalog, and the inference component that serves it.

    `inference_component_name` is None on a multi-model endpoint. `alone` is True if the inference component serves only
    this model. `archive` is the TargetModel if that is not derived from the model's name, else None.
    """

    endpoint_name: str
    model: str
    inference_component_name: str | None = None
    alone: bool = False
    archive: str | None = None

    @property
    def target_model(self) -> str | None:
        """Return the model's TargetModel on a multi-model endpoint; None if an inference component serves the model."""
        if self.inference_component_name is not None:
            return None
        return target_model(self.model) if self.archive is None else self.archive

    def arguments(self, custom_attributes: str | None = None) -> dict[str, str]:
        """Return the keyword arguments of InvokeEndpoint for this route (API reference: InvokeEndpoint).

        Args:
            custom_attributes: the caller's own attributes, such as `trace=abc`, which precede the route's attribute.

        Raises:
            RoutingError: the attributes name a model themselves, are too long, or hold characters that a header field
                cannot.
        """
        own = [] if custom_attributes is None else [_checked(custom_attributes)]
        address = {"TargetModel": self.target_model, "InferenceComponentName": self.inference_component_name}
        if self.inference_component_name is not None and not self.alone:
            own.append(f"{MODEL_NAME}={server_name(_checked_name(self.model))}")
        attributes = ";".join(own)
        if len(attributes) > MAX_ATTRIBUTES_LENGTH:
            raise RoutingError(
                "attributes-too-long",
                "custom_attributes",
                f"{len(attributes)} characters with those of the route",
                allowed=str(MAX_ATTRIBUTES_LENGTH),
                fix="shorten them",
            )
        return {
            "EndpointName": self.endpoint_name,
            **{name: value for name, value in address.items() if value is not None},
            **({"CustomAttributes": attributes} if attributes else {}),
        }

    def command_options(self) -> list[str]:
        """Return the arguments of InvokeEndpoint as options of `aws sagemaker-runtime invoke-endpoint`."""
        return [word for name, value in self.arguments().items() for word in (f"--{xform_name(name, '-')}", value)]

    def check_given(self, *, target_model: str | None = None, inference_component_name: str | None = None) -> None:
        """Reject the caller's TargetModel or component name if it differs from the route's; None is always accepted.

        Raises:
            RoutingError: the argument belongs to another topology, or addresses another model.
        """
        for name, given, right in (
            ("target_model", target_model, self.target_model),
            ("inference_component_name", inference_component_name, self.inference_component_name),
        ):
            if given is not None and given != right:
                raise self._other_address(name, given, right)

    def _other_address(self, name: str, given: str, right: str | None) -> RoutingError:
        if right is not None:
            what = f"{given!r} does not lead to model {self.model!r} on endpoint {self.endpoint_name!r}"
            return RoutingError("address-of-other-model", name, what, allowed=repr(right), fix=f"leave {name} out")
        kind, instead = (
            ("a multi-model endpoint", f"target_model {self.target_model!r}")
            if self.inference_component_name is None
            else ("not a multi-model endpoint", f"inference_component_name {self.inference_component_name!r}")
        )
        return RoutingError(
            "address-of-other-topology",
            name,
            f"got {given!r}, which endpoint {self.endpoint_name!r} does not accept, because it is {kind}",
            allowed=instead,
            fix=f"leave {name} out and give model {self.model!r} alone",
        )


def target_model(name: str) -> str:
    """Return a model's TargetModel on a multi-model endpoint: the path of the model's archive below ModelDataUrl."""
    return name + ARCHIVE_SUFFIX


def component_name(endpoint_name: str) -> str:
    """Return the name of the inference component that serves all models of a scale-to-zero endpoint."""
    return endpoint_name + COMPONENT_SUFFIX


def own_component_name(endpoint_name: str, model: str) -> str:
    """Return the name of the inference component that serves only this model."""
    return f"{endpoint_name}-{model}"


def addresses(topology: str, models: Iterable[str]) -> dict[str, str]:
    """Map each model to its name in a call: TargetModel (multi-model), server's name (scale-to-zero), else its own."""
    stands_for = {MULTI_MODEL: target_model, SCALE_TO_ZERO: server_name}.get(topology, str)
    return {name: stands_for(name) for name in models}


def find_route(
    *,
    endpoint_name: str,
    topology: str,
    model: str,
    known: Iterable[str] | Mapping[str, str],
    inference_component_name: str | None = None,
) -> Route:
    """Return the route to a model by its name in the catalog.

    Args:
        endpoint_name: the name of the endpoint.
        topology: one of TOPOLOGIES, as in the stack's outputs.
        model: the model's name in the catalog.
        known: the names of all models on the endpoint; with topology cpu-onnx a mapping from each name to its
            TargetModel, as in the stack's output Models.
        inference_component_name: the inference component of a scale-to-zero endpoint; None with any other topology.

    Raises:
        RoutingError: no model of this name is deployed, or topology and component contradict each other.
    """
    if topology not in TOPOLOGIES:
        raise RoutingError(
            "topology-unknown",
            f"endpoint {endpoint_name}",
            f"has the topology {topology!r}",
            allowed=", ".join(TOPOLOGIES),
            fix="use the version of lmi-cohost that deployed it",
        )
    if topology == SCALE_TO_ZERO and inference_component_name is None:
        raise RoutingError(
            "component-name-missing",
            "inference_component_name",
            f"is missing for the {SCALE_TO_ZERO} endpoint {endpoint_name!r}",
            allowed="the stack's output InferenceComponentName",
            fix=f"pass it, e.g. {component_name(endpoint_name)!r}",
        )
    if topology != SCALE_TO_ZERO and inference_component_name is not None:
        raise RoutingError(
            "component-name-unused",
            "inference_component_name",
            f"got {inference_component_name!r}, but the {topology} endpoint {endpoint_name!r} has no such component",
            allowed="None",
            fix="leave it out",
        )
    names = sorted(known)
    if model not in names:
        raise RoutingError(
            "model-not-deployed",
            "model",
            f"{model!r} is not on endpoint {endpoint_name!r}" if model else "is empty",
            allowed=", ".join(names) or "none yet",
            fix=_hint(model, names, inference_component_name),
        )
    if topology == INFERENCE_COMPONENTS:
        component = own_component_name(endpoint_name, model)
        return Route(endpoint_name=endpoint_name, model=model, inference_component_name=component, alone=True)
    if topology == CPU_ONNX and isinstance(known, Mapping):
        return Route(endpoint_name=endpoint_name, model=model, archive=known[model])
    return Route(endpoint_name=endpoint_name, model=model, inference_component_name=inference_component_name)


def _checked(attributes: str) -> str:
    """Return the caller's own custom attributes, or reject them if they cannot be sent beside the route's attribute."""
    if odd := [character for character in attributes if not "!" <= character <= "~"]:
        raise RoutingError(
            "attributes-not-ascii",
            "custom_attributes",
            f"{odd[0]!r} in {attributes!r}",
            allowed="visible US-ASCII characters",
            fix="encode it, e.g. with urllib.parse.quote",
        )
    for part in attributes.split(";"):
        if part.partition("=")[0].casefold() == MODEL_NAME:
            raise RoutingError(
                "attributes-name-model",
                "custom_attributes",
                f"{part!r} names a model",
                allowed=f"attributes beside {MODEL_NAME}",
                fix="leave it out and give the model's name as `model`",
            )
    return attributes.strip(";")


def _checked_name(model: str) -> str:
    """Return a model's name, or reject it if a header cannot contain it or it would add a custom attribute."""
    if not model or ";" in model or not all("!" <= character <= "~" for character in model):
        raise RoutingError(
            "model-name-unusable",
            "model",
            f"{model!r} cannot be named in the custom attributes",
            allowed="visible US-ASCII characters except ;",
            fix="give the name that the catalog has",
        )
    return model


def _hint(model: str, names: list[str], component: str | None) -> str:
    plain = model.removesuffix(ARCHIVE_SUFFIX)
    if plain in names:
        return f"write {plain!r}, without {ARCHIVE_SUFFIX}"
    if model == component:
        return "name one of these models: the inference component serves all of them"
    if close := difflib.get_close_matches(model.casefold(), names, n=1, cutoff=0.6):
        return f"write {close[0]!r}"
    how = "deploy or push it" if component is None else "deploy it"
    return f"name one of these, or add the model to the catalog and {how}"
