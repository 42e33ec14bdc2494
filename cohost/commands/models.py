"""The subcommand that lists the catalog's models, with `cohost models inspect` below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, load_with_warnings
from cohost.commands.plan import inspect

if TYPE_CHECKING:
    from cohost.catalog.models import ModelEntry

models_app = typer.Typer()
models_app.command()(inspect)


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


def _row(item: tuple[str, ModelEntry]) -> tuple[object, ...]:
    name, entry = item
    return name, entry.model_id, entry.revision[:8] if entry.revision else None, entry.task, entry.required_memory_mb
