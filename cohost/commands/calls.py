"""The subcommands that call a deployed endpoint or show its state: `cohost invoke` and `cohost status`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import boto3
import typer

from cohost.commands import console
from cohost.commands.options import JsonOption, RestartTimeoutOption, StackOption, WakeTimeoutOption
from cohost.endpoint.client import CohostClient
from cohost.endpoint.copies import WAKE_TIMEOUT_S
from cohost.endpoint.load_failures import reason_from_log
from cohost.endpoint.probing import probe_deployment
from cohost.endpoint.stack_outputs import DEFAULT_STACK, read_deployment
from cohost.endpoint.status import read_status
from cohost.errors import InvocationError


def invoke(
    texts: Annotated[list[str], typer.Argument(help="The texts to send, at least one.")],
    model: Annotated[str, typer.Option("--model", help="The model's name in the catalog.")],
    pair: Annotated[
        list[str] | None, typer.Option("--pair", help="The second text of a pair; give one --pair for each text.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="The labels of zero-shot-classification, as a,b,c.")
    ] = None,
    parameters: Annotated[str, typer.Option("--parameters", help="The task's parameters as a JSON object.")] = "{}",
    and_wake: Annotated[
        bool,
        typer.Option("--wake", help="If no copy of a scale-to-zero endpoint runs, wait until the endpoint answers."),
    ] = False,
    wake_timeout: WakeTimeoutOption = WAKE_TIMEOUT_S,
    restart_timeout: RestartTimeoutOption = None,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Call a model.

    Example: cohost invoke --model mdeberta "A man sleeps." --pair "A man is awake."
    """
    inputs = _inputs(texts, pair or [])
    given = _parameters(parameters, labels)
    client = CohostClient.from_stack(stack)
    calling, waking = f"Calling {model} (a first call loads the model)", f"Waking {client.deployment.endpoint_name}"
    logs = boto3.client("logs", region_name=client.deployment.region)
    with (
        console.waiting(calling, waking) as notice,
        reason_from_log(logs, client.deployment.endpoint_name, model),
    ):
        answer = client.invoke(
            model,
            inputs,
            given,
            restart_timeout_s=restart_timeout,
            wake=and_wake,
            wake_timeout_s=wake_timeout,
            notice=notice,
        )
    if as_json:
        console.print_json(answer)
    else:
        console.print_answer(texts, answer)


def status(
    stack: StackOption = DEFAULT_STACK,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Call each model, which may load the model; end with exit code 1 if a model does not answer.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show endpoint, generation, archives and the number of loaded models; with --probe, show which models answer.

    Example: cohost status --probe
    """
    session = boto3.Session()
    deployment = read_deployment(session.client("cloudformation"), stack)
    found = read_status(deployment, session)
    probes = probe_deployment(found, deployment, session) if probe else None
    if as_json:
        console.print_json({**asdict(found), "probes": None if probes is None else [asdict(one) for one in probes]})
    else:
        console.print_status(found)
        console.print_probes(probes)
    if not all(one.well for one in probes or ()):
        raise typer.Exit(console.EXIT_FAULT)


def _inputs(texts: list[str], pairs: list[str]) -> object:
    if pairs and len(pairs) != len(texts):
        raise InvocationError(
            "pairs-unmatched",
            "--pair",
            f"{len(pairs)} given for {len(texts)} texts",
            allowed="one per text",
            fix="repeat --pair",
        )
    items: list[object] = (
        [{"text": a, "text_pair": b} for a, b in zip(texts, pairs, strict=True)] if pairs else [*texts]
    )
    return items[0] if len(items) == 1 else items


def _parameters(text: str, labels: str | None) -> dict[str, Any]:
    try:
        parameters = json.loads(text)
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise InvocationError(
            "parameters-not-json",
            "--parameters",
            f"{text!r} is not a JSON object",
            fix="write e.g. '{\"top_k\": null}'",
        )
    if labels is not None:
        parameters["candidate_labels"] = [label.strip() for label in labels.split(",") if label.strip()]
    return parameters
