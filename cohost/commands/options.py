"""Options that several subcommands have, and functions that look up catalog, model and packages for them."""

from __future__ import annotations

import difflib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cohost.catalog_file import load_catalog
from cohost.commands import console
from cohost.errors import CatalogError, PackagesError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cohost.catalog.models import ModelEntry
    from cohost.catalog_file import LoadedCatalog

_SECONDS_BY_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_seconds(text: str | float) -> float:
    """Convert a duration such as 90, 90s, 15m or 1h to seconds; raises typer.BadParameter for any other text."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([smh]?)", str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r}; allowed: a number with s, m or h, such as 15m")
    return float(found[1]) * _SECONDS_BY_UNIT[found[2]]


CatalogOption = Annotated[
    Path, typer.Option("--catalog", envvar="COHOST_CATALOG", help="The YAML file that describes the deployment.")
]
StackOption = Annotated[str, typer.Option("--stack", envvar="COHOST_STACK", help="The CloudFormation stack.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for scripts.", callback=console.answer_in_json, is_eager=True)
]
StateOption = Annotated[
    Path,
    typer.Option("--state", envvar="COHOST_STATE", help="The folder for logs, fetched archives and the process id."),
]
_DURATION: Any = {"parser": parse_seconds, "metavar": "DURATION", "show_default": "15m"}
WakeTimeoutOption = Annotated[
    float, typer.Option("--wake-timeout", **_DURATION, help="The longest wait for a copy, such as 15m.")
]
RestartTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--restart-timeout",
        parser=parse_seconds,
        metavar="DURATION",
        show_default="2m with handler batched or shared, else 5s",
        help="The longest wait for a model whose worker process has ended.",
    ),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", **_DURATION, help="The longest wait, such as 15m.")]
DEFAULT_CATALOG = Path("model_configs/encoders.yaml")
OFFLINE_CATALOG = Path("model_configs/offline.yaml")


def load_with_warnings(path: Path) -> LoadedCatalog:
    """Load the catalog from a file and print the catalog's warnings to stderr.

    Raises:
        CatalogError: the file cannot be read or has faults.
    """
    loaded = load_catalog(path)
    for warning in loaded.catalog.warnings:
        console.print_warning(warning)
    return loaded


def check_packages(names: Iterable[str], *groups: str) -> None:
    """Check that the Python packages that a command needs are installed; a machine that only deploys may lack them.

    Args:
        names: the packages' import names.
        groups: the dependency groups of pyproject.toml that have the packages.

    Raises:
        PackagesError: a package is missing.
    """
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise PackagesError(
            "packages-missing",
            "packages",
            f"{', '.join(missing)} not installed",
            allowed=f"an environment with the groups {', '.join(groups)}",
            fix=f"run `make setup`, or `uv sync {' '.join(f'--group {one}' for one in groups)}`",
        )


def entry_of(loaded: LoadedCatalog, name: str) -> ModelEntry:
    """Return the entry of a model in the catalog.

    Raises:
        CatalogError: the catalog has no model of that name.
    """
    models = loaded.catalog.models
    if name not in models:
        hint = difflib.get_close_matches(name, models, n=1)
        fix = f"write {hint[0]!r}" if hint else "name one of these, or add it to the catalog"
        field, problem = f"model {name}", f"is not in {loaded.source}"
        raise CatalogError("model-not-in-catalog", field, problem, allowed=", ".join(models), fix=fix)
    return models[name]
