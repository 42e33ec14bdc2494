"""The subcommands about models' archives: `cohost render`, `bundle`, `verify` and `push`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import boto3
import typer
from rich.progress import track
from rich.text import Text

from cohost.archives.archive import pack, write_archive
from cohost.archives.errors import ArtifactError
from cohost.archives.handlers import SHARED
from cohost.archives.properties import dumps
from cohost.archives.store import ModelStore
from cohost.archives.verify import verify as verify_archive
from cohost.archives.verify import verify_bundle
from cohost.catalog.serving import archives_of, files_of, properties_of
from cohost.commands import console
from cohost.commands.options import (
    DEFAULT_CATALOG,
    CatalogOption,
    JsonOption,
    StackOption,
    entry_of,
    load_with_warnings,
)
from cohost.deploy.rollback import check_engine_version
from cohost.endpoint.stack_outputs import DEFAULT_STACK, read_deployment, read_template
from cohost.hardware.images import parse_image
from cohost.routing import ARCHIVE_SUFFIX, SCALE_TO_ZERO
from cohost.weights.prune import check_bundled, live_bucket
from cohost.weights.store import find_bucket


def render(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")],
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Print the serving.properties of a model.

    Example: cohost render mdeberta
    """
    loaded = load_with_warnings(catalog)
    properties = properties_of(entry_of(loaded, name), loaded.catalog.endpoint, name)
    if as_json:
        console.print_json(properties)
    else:
        console.out.print(Text(dumps(properties)), end="", soft_wrap=True)


def bundle(
    out: Annotated[Path, typer.Option("--out", help="The folder to write the archives to.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of models in the catalog (default: all).")] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Write the archives that a deploy would publish: one per model, or one of all models with topology scale-to-zero.

    Example: cohost bundle mdeberta --out dist
    """
    loaded = load_with_warnings(catalog)
    if names and loaded.catalog.endpoint.topology == SCALE_TO_ZERO:
        raise ArtifactError(
            "names-of-a-bundle",
            names[0],
            f"{SCALE_TO_ZERO} publishes one archive of all models",
            allowed="no names",
            fix="leave the names out",
        )
    entries = {name: entry_of(loaded, name) for name in names or loaded.catalog.models}
    for name, entry in entries.items():
        check_bundled(name, entry)
    pushed = any(entry.pushed for entry in entries.values())
    weights_bucket = find_bucket(loaded.catalog, boto3.Session()) if pushed else None
    written = []
    archives = list(archives_of(loaded.catalog, entries, weights_bucket))
    for name, files in track(archives, "Bundling", console=console.err, transient=True):
        path = out / f"{name}{ARCHIVE_SUFFIX}"
        write_archive(path, pack(files))
        written.append(str(path))
    if as_json:
        console.print_json(written)
    else:
        console.out.print(Text("\n".join(written)), soft_wrap=True)


def verify(
    archives: Annotated[list[Path], typer.Argument(help="Archives (tar.gz) of any origin.")],
    bundles: Annotated[
        bool,
        typer.Option("--bundle", help="Check archives of scale-to-zero, which have one folder per model."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every error of an archive, each with its fix.

    Ends with exit code 1 if an archive has an error, and with 0 if it has only warnings.

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
                console.print_table(path, ("severity", "code", "problem", "fix"), rows)
            else:
                console.out.print(Text(f"{path}: no fault"), soft_wrap=True)
    if any(fault.severity == "error" for faults in found.values() for fault in faults):
        raise typer.Exit(console.EXIT_FAULT)


def push(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")],
    catalog: CatalogOption = DEFAULT_CATALOG,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Add one model to the archives that the endpoint serves: upload its archive, without a deploy.

    Example: cohost push mdeberta
    """
    loaded = load_with_warnings(catalog)
    entry, image = entry_of(loaded, name), parse_image(loaded.catalog.endpoint.image)
    session = boto3.Session()
    deployment = read_deployment(session.client("cloudformation"), stack)
    deployment.check_pushable()
    if entry.handler == SHARED:
        check_engine_version(read_template(session.client("cloudformation"), stack), name, entry.handler)
    s3 = session.client("s3", region_name=deployment.region)
    bucket = live_bucket(name, entry, deployment, s3)
    files = files_of(entry, image, bucket, endpoint=loaded.catalog.endpoint, name=name)
    store = ModelStore(s3, deployment.bucket, deployment.prefix)
    digest = store.add(deployment.generation, name, files)
    if as_json:
        console.print_json({"model": name, "generation": deployment.generation, "digest": digest})
    else:
        console.out.print(
            Text(f"{name} is in generation {deployment.generation} (content {digest[:12]})"), soft_wrap=True
        )
