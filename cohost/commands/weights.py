"""The subcommands `cohost weights …`, which upload models' weights to S3, list them, and remove unused weights."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import boto3
import typer
from botocore.config import Config
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, entry_of, load_with_warnings
from cohost.errors import WeightsError
from cohost.weights.prune import Use, uses
from cohost.weights.push import Pushed, Pusher
from cohost.weights.source import Folders, Hub, Source, read_token
from cohost.weights.store import WeightsStore, find_bucket

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog

weights_app = typer.Typer(help="Weights of models in S3: push, list, prune.", no_args_is_help=True)

_SHOWN = 8
"""The digits that are printed of a commit, as many as on the Hub's pages."""

_NAMES = Annotated[list[str] | None, typer.Argument(help="Names of models (default: all whose weights go to S3).")]
_FROM = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        envvar="COHOST_HUB",
        help="Read models from a folder of org/name, not from the Hub; may be repeated.",
    ),
]
_TOKEN_FROM = Annotated[
    str | None,
    typer.Option(
        "--token-from",
        help="Where the Hub token is: secretsmanager:NAME or ssm:NAME (default: hub_token, HF_TOKEN).",
    ),
]


@weights_app.command()
def push(
    names: _NAMES = None,
    catalog: CatalogOption = DEFAULT_CATALOG,
    folders: _FROM = None,
    token_from: _TOKEN_FROM = None,
    as_json: JsonOption = False,
) -> None:
    """Upload the weights of models' pinned revisions, except files that are already in S3.

    After Ctrl-C or a lost connection, the same command uploads the missing parts.

    Example: cohost weights push mdeberta --token-from secretsmanager:hub-token
    """
    loaded = load_with_warnings(catalog)
    wanted = names or [name for name, entry in loaded.catalog.models.items() if entry.pushed]
    if not wanted:
        raise WeightsError(
            "weights-on-hub",
            str(catalog),
            "no model has weights: s3 or archive",
            fix="write `weights: s3` for the catalog or for a model",
        )
    entries = {name: entry_of(loaded, name) for name in wanted}
    session = boto3.Session()
    store = _store(loaded.catalog, session)
    source = _source(loaded.catalog, session, folders or [], token_from)
    with _Bars() as bars:
        pusher = Pusher(store, source, bars)
        pushed = [pusher.push(name, entry) for name, entry in entries.items()]
    if as_json:
        console.print_json([asdict(one) for one in pushed])
    else:
        console.print_table(f"Weights in {store.bucket}", ("model", "lies at", "size", "sent"), map(_row, pushed))


@weights_app.command("list")
def list_weights(catalog: CatalogOption = DEFAULT_CATALOG, as_json: JsonOption = False) -> None:
    """Show each revision in the bucket, its completeness, and the models that use it.

    Example: cohost weights list
    """
    _print_uses(*_read_uses(load_with_warnings(catalog).catalog), as_json=as_json)


@weights_app.command()
def prune(
    catalog: CatalogOption = DEFAULT_CATALOG,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List what would be removed, but remove nothing."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also remove revisions that this catalog uses, unless a deployed stack uses them.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove incomplete uploads, and revisions that neither the catalog nor a deployed archive uses.

    Example: cohost weights prune --dry-run
    """
    store, found = _read_uses(load_with_warnings(catalog).catalog)
    unused = [use for use in found if not (use.deployed if everything else use.users)]
    if not dry_run:
        for use in unused:
            store.delete(use.stored)
    _print_uses(store, unused, as_json=as_json, title="Would be removed from" if dry_run else "Removed from")


def _store(catalog: Catalog, session: boto3.Session) -> WeightsStore:
    # Large parts over slow lines need a long read timeout and retries, so that an upload of an hour does not fail.
    config = Config(retries={"mode": "standard", "max_attempts": 10}, read_timeout=300)
    return WeightsStore(session.client("s3", config=config), find_bucket(catalog, session))


def _source(catalog: Catalog, session: boto3.Session, folders: list[Path], token_from: str | None) -> Source:
    if folders:
        return Folders(folders)
    place = token_from or catalog.hub_token
    return Hub(None if place is None else read_token(place, session))


def _read_uses(catalog: Catalog) -> tuple[WeightsStore, list[Use]]:
    session = boto3.Session()
    store = _store(catalog, session)
    return store, uses(store.revisions(), catalog, store.bucket, session)


def _print_uses(store: WeightsStore, found: list[Use], *, as_json: bool, title: str = "Weights in") -> None:
    if as_json:
        console.print_json([_facts(store, use) for use in found])
    elif found:
        columns = ("weights", "size", "state", "used by")
        console.print_table(f"{title} {store.bucket}", columns, map(_use_row, found))
    else:
        console.out.print(Text(f"{title} {store.bucket}: nothing"), soft_wrap=True)


def _facts(store: WeightsStore, use: Use) -> dict[str, Any]:
    stored = use.stored
    return {
        "model_id": stored.revision.model_id,
        "revision": stored.revision.revision,
        "uri": stored.revision.uri(store.bucket),
        "size": stored.size,
        "whole": stored.whole,
        "users": use.users,
    }


def _use_row(use: Use) -> tuple[object, ...]:
    stored = use.stored
    state = "whole" if stored.whole else "unfinished"
    name = f"{stored.revision.model_id}@{stored.revision.revision[:_SHOWN]}"
    return name, decimal(stored.size), state, ", ".join(use.users)


def _row(pushed: Pushed) -> tuple[object, ...]:
    return pushed.name, pushed.uri, decimal(pushed.size), decimal(pushed.sent) if pushed.sent else "nothing, all there"


class _Bars:
    """The progress of a push as a bar on stderr, one per step; nothing is drawn if stderr is not a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console.err, transient=True, disable=not console.err.is_terminal)
        self._task = self._progress.add_task("", start=False)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int) -> None:
        """Replace the last step's bar by one for the step `what` of `total` bytes; 0 means an unknown number."""
        with self._lock:
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(what, total=total or None)

    def advance(self, count: int) -> None:
        """Advance the bar by `count` bytes."""
        self._progress.advance(self._task, count)
