"""A call of a model that can be pasted into a shell."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from cohost.routing import find_route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def tiny_call(task: str | None) -> tuple[str, dict[str, object]]:
    """A short text, and the parameters that a model of this task cannot do without (None: no task is known)."""
    parameters: dict[str, object] = {}
    if task == "zero-shot-classification":
        parameters["candidate_labels"] = ["shipping", "billing"]
    return "The delivery came two days early.", parameters


def call_of(
    model: str,
    task: str,
    region: str,
    *,
    endpoint_name: str,
    topology: str,
    known: Iterable[str] | Mapping[str, str],
    inference_component_name: str | None = None,
) -> str:
    """The `aws` command that calls a model with one text, and labels where its task needs some.

    The rest is as `find_route` takes it, which may raise RoutingError.
    """
    route = find_route(
        endpoint_name=endpoint_name,
        topology=topology,
        model=model,
        known=known,
        inference_component_name=inference_component_name,
    )
    text, parameters = tiny_call(task)
    body = {"inputs": text, **({"parameters": parameters} if parameters else {})}
    return shlex.join(
        [
            *("aws", "sagemaker-runtime", "invoke-endpoint", "--region", region),
            *route.command_options(),
            *("--content-type", "application/json", "--cli-binary-format", "raw-in-base64-out"),
            *("--body", json.dumps(body), "/dev/stdout"),
        ]
    )
