"""The `cohost` command: each subcommand parses its arguments, calls one function of the core, and prints.

Exit codes: 0 success; 1 a fault, told in one line on stderr; 2 wrong usage; 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.progress import track
from rich.text import Text

from cohost import console
from cohost.artifacts.archive import pack, write_archive
from cohost.artifacts.errors import ArtifactError
from cohost.artifacts.properties import dumps
from cohost.artifacts.store import ModelStore
from cohost.artifacts.verify import verify as verify_archive
from cohost.artifacts.verify import verify_bundle
from cohost.catalog import ModelEntry
from cohost.cli_cleanup import cleanup, orphans
from cohost.cli_cost import cost, diff, prices_app
from cohost.cli_deploy import deploy, preflight
from cohost.cli_expiry import expire
from cohost.cli_local import demo, local_app
from cohost.cli_onnx import export_onnx
from cohost.cli_options import (
    DEFAULT_CATALOG,
    CatalogOption,
    JsonOption,
    StackOption,
    WakeTimeoutOption,
    entry_of,
    load_with_warnings,
)
from cohost.cli_plan import inspect, plan
from cohost.cli_report import bench, report
from cohost.cli_scaling import sleep, wake
from cohost.cli_simulate import simulate
from cohost.cli_weights import weights_app
from cohost.client import CohostClient
from cohost.deployment import DEFAULT_STACK, read_deployment
from cohost.errors import CohostError, InvocationError
from cohost.images import parse_image
from cohost.render import archives_of, files_of, properties_of
from cohost.routing import ARCHIVE_SUFFIX, SCALE_TO_ZERO
from cohost.status import read_status
from cohost.waking import WAKE_TIMEOUT_S
from cohost.weights.live import check_bundled, live_bucket
from cohost.weights.place import find_bucket

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
):
    app.command()(command)


def main() -> None:
    """Run the command; known faults end it with one line on stderr and the documented exit code."""
    try:
        app()
    except (CohostError, ArtifactError) as error:
        console.print_fault(str(error))
        sys.exit(EXIT_FAULT)
    except (ClientError, BotoCoreError) as error:
        console.print_fault(f"{error}; fix: check credentials, region and rights (AWS_PROFILE, AWS_REGION)")
        sys.exit(EXIT_FAULT)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context, catalog: CatalogOption = DEFAULT_CATALOG, as_json: JsonOption = False) -> None:
    """List the models of the catalog.

    Example: cohost models --catalog model_configs/offline.yaml
    """
    if context.invoked_subcommand is not None:
        return
    loaded = load_with_warnings(catalog)
    if as_json:
        console.print_json(
            {name: entry.model_dump(mode="json", by_alias=True) for name, entry in loaded.models.items()}
        )
        return
    columns = ("model", "model id", "revision", "task", "MiB")
    console.print_table(f"{len(loaded.models)} models of {catalog}", columns, map(_row, loaded.models.items()))


@app.command()
def render(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")],
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Print the serving.properties of a model.

    Example: cohost render mdeberta
    """
    properties = properties_of(entry_of(load_with_warnings(catalog), name))
    if as_json:
        console.print_json(properties)
    else:
        console.out.print(Text(dumps(properties)), end="", soft_wrap=True)


@app.command()
def bundle(
    out: Annotated[Path, typer.Option("--out", help="The folder to write the archives to.")],
    names: Annotated[list[str] | None, typer.Argument(help="Models of the catalog; all when left out.")] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Write archives as the deploy would publish them: one a model, or one of all models that scale to zero together.

    Example: cohost bundle mdeberta --out dist
    """
    loaded = load_with_warnings(catalog)
    if names and loaded.endpoint.topology == SCALE_TO_ZERO:
        raise ArtifactError(f"{names[0]}: {SCALE_TO_ZERO} publishes one archive of all models; leave the names out")
    entries = {name: entry_of(loaded, name) for name in names or loaded.models}
    for name, entry in entries.items():
        check_bundled(name, entry)
    pushed = any(entry.pushed for entry in entries.values())
    weights_bucket = find_bucket(loaded, boto3.Session()) if pushed else None
    written = []
    archives = list(archives_of(loaded, entries, weights_bucket))
    for name, files in track(archives, "Bundling", console=console.err, transient=True):
        path = out / f"{name}{ARCHIVE_SUFFIX}"
        write_archive(path, pack(files))
        written.append(str(path))
    if as_json:
        console.print_json(written)
    else:
        console.out.print(Text("\n".join(written)), soft_wrap=True)


@app.command()
def verify(
    archives: Annotated[list[Path], typer.Argument(help="Archives (tar.gz) of any origin.")],
    bundles: Annotated[
        bool,
        typer.Option("--bundle", help="They hold a folder for each of several models, as scale-to-zero needs them."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every fault of an archive, each with its fix.

    Ends with exit code 1 when an archive has an error; warnings alone leave it 0.

    Example: cohost verify dist/mdeberta.tar.gz
    """
    check = verify_bundle if bundles else verify_archive
    found = {str(path): check(path) for path in archives}
    if as_json:
        console.print_json({path: [asdict(fault) for fault in faults] for path, faults in found.items()})
    else:
        for path, faults in found.items():
            rows = [(fault.severity, fault.code, fault.message, fault.fix) for fault in faults]
            if rows:
                console.print_table(path, ("severity", "code", "what is wrong", "fix"), rows)
            else:
                console.out.print(Text(f"{path}: no fault"), soft_wrap=True)
    if any(fault.severity == "error" for faults in found.values() for fault in faults):
        raise typer.Exit(EXIT_FAULT)


@app.command()
def push(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")],
    catalog: CatalogOption = DEFAULT_CATALOG,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Add one model to the live generation: one upload, nothing else changes.

    Example: cohost push mdeberta
    """
    loaded = load_with_warnings(catalog)
    entry, image = entry_of(loaded, name), parse_image(loaded.endpoint.image)
    session = boto3.Session()
    deployment = read_deployment(session.client("cloudformation"), stack)
    deployment.check_pushable()
    s3 = session.client("s3", region_name=deployment.region)
    files = files_of(entry, image, live_bucket(name, entry, deployment, s3))
    store = ModelStore(s3, deployment.bucket, deployment.prefix)
    digest = store.add(deployment.generation, name, files)
    if as_json:
        console.print_json({"model": name, "generation": deployment.generation, "digest": digest})
    else:
        console.out.print(
            Text(f"{name} is in generation {deployment.generation} (content {digest[:12]})"), soft_wrap=True
        )


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
    with console.waiting(calling, waking) as notice:
        answer = client.invoke(model, inputs, given, wake=and_wake, wake_timeout_s=wake_timeout, notice=notice)
    if as_json:
        console.print_json(answer)
    else:
        console.print_answer(texts, answer)


@app.command()
def status(stack: StackOption = DEFAULT_STACK, as_json: JsonOption = False) -> None:
    """Show endpoint, generation, archives and how many models are loaded.

    Example: cohost status --json
    """
    session = boto3.Session()
    found = read_status(read_deployment(session.client("cloudformation"), stack), session)
    if as_json:
        console.print_json(asdict(found))
    else:
        console.print_status(found)


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
