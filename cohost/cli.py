"""The `cohost` command: each subcommand parses its arguments, calls one function of the core, and prints.

Exit codes: 0 success; 1 an error, printed as one line on stderr; 2 wrong usage; 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.errors import CodedError
from cohost.catalog.models import ModelEntry
from cohost.commands import console
from cohost.commands.archives import bundle, push, render, verify
from cohost.commands.cleanup import cleanup, orphans
from cohost.commands.compare import compare
from cohost.commands.cost import cost, diff, prices_app
from cohost.commands.deploy import deploy, preflight
from cohost.commands.engines import engines
from cohost.commands.expiry import expire
from cohost.commands.local import demo, local_app
from cohost.commands.onnx import export_onnx
from cohost.commands.options import (
    DEFAULT_CATALOG,
    CatalogOption,
    JsonOption,
    RestartTimeoutOption,
    StackOption,
    WakeTimeoutOption,
    load_with_warnings,
)
from cohost.commands.plan import inspect, plan
from cohost.commands.report import bench, report
from cohost.commands.rollback import rollback
from cohost.commands.scaling import sleep, wake
from cohost.commands.simulate import simulate
from cohost.commands.weights import weights_app
from cohost.endpoint.client import CohostClient
from cohost.endpoint.copies import WAKE_TIMEOUT_S
from cohost.endpoint.load_failures import told_by_the_log
from cohost.endpoint.probing import probe_deployment
from cohost.endpoint.stack_outputs import DEFAULT_STACK, read_deployment
from cohost.endpoint.status import read_status
from cohost.errors import InvocationError

EXIT_FAULT = 1

app = typer.Typer(
    help="Several encoder models on one SageMaker endpoint.", no_args_is_help=True, pretty_exceptions_enable=False
)
models_app = typer.Typer()
app.add_typer(models_app, name="models")
models_app.command("inspect")(inspect)
app.add_typer(local_app, name="local")
app.add_typer(prices_app, name="prices")
app.add_typer(weights_app, name="weights")
for command in (
    render,
    bundle,
    verify,
    push,
    demo,
    plan,
    cost,
    diff,
    simulate,
    bench,
    report,
    wake,
    sleep,
    expire,
    preflight,
    deploy,
    cleanup,
    orphans,
    export_onnx,
    engines,
    rollback,
    compare,
):
    app.command()(command)


def main() -> None:
    """Run the command; known errors end it with one line on stderr and the documented exit code."""
    try:
        app()
    except CodedError as error:
        console.print_error(error)
    except (ClientError, BotoCoreError) as error:
        console.print_error(
            CodedError(
                "aws-error", "AWS", str(error), fix="check credentials, region and rights (AWS_PROFILE, AWS_REGION)"
            )
        )
    else:
        return
    sys.exit(EXIT_FAULT)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context, catalog: CatalogOption = DEFAULT_CATALOG, as_json: JsonOption = False) -> None:
    """List the models of the catalog.

    Example: cohost models --catalog model_configs/offline.yaml
    """
    if context.invoked_subcommand is not None:
        return
    loaded = load_with_warnings(catalog).catalog
    if as_json:
        console.print_json(
            {name: entry.model_dump(mode="json", by_alias=True) for name, entry in loaded.models.items()}
        )
        return
    columns = ("model", "model id", "revision", "task", "MiB")
    console.print_table(f"{len(loaded.models)} models of {catalog}", columns, map(_row, loaded.models.items()))


@app.command()
def invoke(
    texts: Annotated[list[str], typer.Argument(help="One text or more.")],
    model: Annotated[str, typer.Option("--model", help="The model's name in the catalog.")],
    pair: Annotated[
        list[str] | None, typer.Option("--pair", help="The second text of a pair, one for each text.")
    ] = None,
    labels: Annotated[str | None, typer.Option("--labels", help="Labels of zero-shot-classification: a,b,c.")] = None,
    parameters: Annotated[str, typer.Option("--parameters", help="The task's parameters as a JSON object.")] = "{}",
    and_wake: Annotated[
        bool, typer.Option("--wake", help="Wait for a scale-to-zero endpoint that is at zero until it answers.")
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
        told_by_the_log(logs, client.deployment.endpoint_name, model),
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


@app.command()
def status(
    stack: StackOption = DEFAULT_STACK,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Call each model, which may load it; exit 1 if one gives no answer."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show endpoint, generation, archives and how many models are loaded; with --probe, which models answer.

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
        raise typer.Exit(EXIT_FAULT)


def _row(item: tuple[str, ModelEntry]) -> tuple[object, ...]:
    name, entry = item
    return name, entry.model_id, entry.revision[:8] if entry.revision else None, entry.task, entry.required_memory_mb


def _inputs(texts: list[str], pairs: list[str]) -> object:
    if pairs and len(pairs) != len(texts):
        raise InvocationError(
            f"--pair: {len(pairs)} given for {len(texts)} texts; allowed: one --pair for each text; fix: repeat --pair"
        )
    items: list[object] = (
        [{"text": a, "text_pair": b} for a, b in zip(texts, pairs, strict=True)] if pairs else [*texts]
    )
    return items[0] if len(items) == 1 else items


def _parameters(text: str, labels: str | None) -> dict[str, Any]:
    try:
        parameters = json.loads(text)
    except ValueError as error:
        raise InvocationError(
            f"--parameters: {text!r} is no JSON ({error}); fix: e.g. '{{\"top_k\": null}}'"
        ) from error
    if not isinstance(parameters, dict):
        raise InvocationError(f"--parameters: {text!r} is no JSON object; fix: e.g. '{{\"top_k\": null}}'")
    if labels is not None:
        parameters["candidate_labels"] = [label.strip() for label in labels.split(",") if label.strip()]
    return parameters
