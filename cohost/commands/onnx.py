"""The subcommand that exports the catalog's models to ONNX for the CPU design (02): `cohost export-onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cohost.commands import console
from cohost.commands.options import (
    DEFAULT_CATALOG,
    CatalogOption,
    JsonOption,
    check_packages,
    entry_of,
    load_with_warnings,
)
from cohost.designs.onnx.recipe import cpu_design, recipe_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohost.designs.onnx.export import Exported
    from cohost.designs.onnx.recipe import Recipe

_NEEDED = ("torch", "transformers", "onnx", "onnxruntime", "onnxscript")


def export_onnx(
    names: Annotated[list[str] | None, typer.Argument(help="Names of models in the catalog (default: all).")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for the archives (default: the one in the catalog)."),
    ] = None,
    hub: Annotated[list[Path] | None, typer.Option("--hub", help="A folder of models, each in org/name.")] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Export models to ONNX, check them against torch, and pack the archives that CpuOnnxStack deploys.

    If the exported model answers too differently from torch, the command fails and an existing archive is kept.

    Example: cohost export-onnx minilm --out dist/onnx
    """
    loaded = load_with_warnings(catalog)
    recipes = [recipe_for(name, loaded.catalog) for name in names or loaded.catalog.models if entry_of(loaded, name)]
    check_packages(_NEEDED, "local", "onnx")
    target = out or Path(cpu_design(loaded.catalog).archives)
    exported = _export(recipes, target, hub or [])
    if as_json:
        console.print_json([{**one.as_data(), "archive": str(one.file)} for one in exported])
    else:
        columns = ("model", "archive", "MiB", "precision", "served by", "off torch by")
        console.print_table(f"{len(exported)} models of {catalog} as ONNX in {target}", columns, map(_row, exported))


def _export(recipes: Sequence[Recipe], out: Path, hubs: Sequence[Path]) -> list[Exported]:
    from cohost.designs.onnx.export import STEPS, export_model  # this module imports torch, which takes seconds

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    exported = []
    with Progress(*columns, console=console.err, transient=True) as progress:
        task = progress.add_task("Exporting", total=len(recipes) * len(STEPS))
        for number, recipe in enumerate(recipes):

            def step(what: str, number: int = number, name: str = recipe.name) -> None:
                done = number * len(STEPS) + STEPS.index(what)
                progress.update(task, description=f"{name}: {what}", completed=done)

            exported.append(export_model(recipe, out, hubs, step))
    return exported


def _row(one: Exported) -> tuple[object, ...]:
    found = one.agreement
    if one.precision == "fp32":
        off = f"{found.output:.1e}"
    elif found.cosine is not None:
        off = f"cosine {found.cosine:.3f}"
    else:
        off = f"{found.probability:.4f}, no label changed"
    return one.name, one.file.name, f"{one.size / 2**20:.1f}", one.precision, one.serving, off
