"""The subcommand that shows which backend can serve a model, and the reasons against the others: `cohost engines`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, entry_of, load_with_warnings
from cohost.engine_support.facts import BACKENDS, FACTS_DATED
from cohost.engine_support.verdicts import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cohost.engine_support.facts import Backend
    from cohost.engine_support.verdicts import ModelVerdicts, Reason


def engines(
    names: Annotated[list[str] | None, typer.Argument(help="Models of the catalog; all when left out.")] = None,
    hub: Annotated[
        list[Path] | None, typer.Option("--hub", help="A folder of models, org/name, whose config.json is read.")
    ] = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    as_json: JsonOption = False,
) -> None:
    """Show which backends can serve each model, and the reasons against the others, with the source of each fact.

    Example: cohost engines mdeberta
    """
    loaded = load_with_warnings(catalog)
    chosen = [name for name in names or loaded.catalog.models if entry_of(loaded, name)]
    found = judge(loaded.catalog, loaded.profiles, chosen, hub or [])
    if as_json:
        console.print_json(
            {"image": loaded.catalog.endpoint.image, "dated": FACTS_DATED, "models": [m.as_data() for m in found]}
        )
        return
    rows = [(m.model.name, m.model.architecture, *(verdict.word for verdict in m.backends.values())) for m in found]
    console.print_table(f"Backends, as of {FACTS_DATED}", ("model", "architecture", *BACKENDS), rows)
    for backend in BACKENDS:
        _explain(backend, found)


def _explain(backend: Backend, found: Sequence[ModelVerdicts]) -> None:
    """Print each reason once, with the models that it holds for."""
    reasons: dict[Reason, list[str]] = {}
    for judged in found:
        verdict = judged.backends[backend]
        for reason in (*verdict.against, *verdict.place, *verdict.notes):
            reasons.setdefault(reason, []).append(judged.model.name)
    if reasons:
        console.out.print(Text(backend, style="bold"))
        for line in _lines(reasons.items(), len(found)):
            console.out.print(Text(line), soft_wrap=True)


def _lines(reasons: Iterable[tuple[Reason, list[str]]], models: int) -> Iterable[str]:
    for reason, names in reasons:
        which = "" if len(names) == models else f"{', '.join(names)}: "
        yield f"  {which}{reason.text} [{reason.source}]"
