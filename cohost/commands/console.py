"""The output of every subcommand: tables for people, JSON for scripts, errors in one line."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cohost.errors import ReportError
from cohost.waiting import minutes_and_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cohost.archives.errors import CodedError
    from cohost.endpoint.probing import Probe
    from cohost.endpoint.status import ComponentStatus, Status
    from cohost.waiting import Waiting


out = Console(highlight=False)
"""The console of stdout: results that a script may read, and nothing else."""

err = Console(stderr=True, highlight=False)
"""The console of stderr: progress, warnings and errors."""

EXIT_FAULT, EXIT_OVER_BUDGET, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 3, 130
"""The exit codes in docs/commands.md; 2 is also Typer's code for wrong usage, and the load test ends with 3 too."""

_LOG_EVERY_S = 30.0
_answer = {"json": False}


def print_json(content: object) -> None:
    """Print one JSON document to stdout, indented, with characters outside ASCII unescaped."""
    out.print(Text(json.dumps(content, indent=2, ensure_ascii=False)), soft_wrap=True)


def write_page(path: Path, text: str) -> None:
    """Write the HTML page that --html requests to a file, and print the file's path to stderr.

    Raises:
        ReportError: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(
            "page-unwritable",
            "--html",
            f"{path} cannot be written ({error.strerror})",
            fix="name a file in a folder that exists",
        ) from error
    err.print(Text(f"written: {path}"), soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with a title; Rich's markup in a value is printed literally."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        # The first column has the name of the row's subject, which is not broken over lines.
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    out.print(table)


def print_panel(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and their meanings in a frame, as Typer prints the help of a command."""
    table = Table.grid("", "", padding=(0, 2, 0, 0), expand=True)
    table.columns[0].style, table.columns[0].no_wrap, table.columns[1].ratio = "bold cyan", True, 1
    for name, meaning in rows:
        table.add_row(name, Text(meaning))
    out.print(Panel(table, title=title, title_align="left", border_style="dim"))


def print_error(error: CodedError) -> None:
    """Print an error to stderr; with --json also to stdout, as `{"errors": [{code, field, problem, …}]}`."""
    print_fault(str(error))
    if _answer["json"]:
        print_json({"errors": error.entries()})


def answer_in_json(chosen: bool) -> bool:  # noqa: FBT001 (typer calls it with the option's value)
    """Store the value of --json, so that `print_error` prints errors as JSON, and return the value."""
    _answer["json"] = chosen
    return chosen


def print_fault(message: str) -> None:
    """Print an error to stderr, each line marked as an error."""
    for line in message.splitlines():
        err.print(Text.assemble(("error: ", "bold red"), line), soft_wrap=True)


def print_warning(message: str) -> None:
    """Print a warning to stderr."""
    err.print(Text.assemble(("warning: ", "bold yellow"), message), soft_wrap=True)


@contextmanager
def waiting(doing: str, awaiting: str) -> Iterator[Callable[[Waiting], None]]:
    """Show the text `doing` on stderr, and yield a callback that shows `awaiting`, the time waited and the limit.

    If stderr is not a terminal but, for example, a log file, the callback prints a line every 30 s.
    """
    printed = -math.inf

    def show(now: Waiting) -> None:
        nonlocal printed
        line = f"{awaiting}: {minutes_and_seconds(now.waited_s)} of at most {minutes_and_seconds(now.limit_s)}"
        status.update(line)
        if not err.is_terminal and now.waited_s - printed >= _LOG_EVERY_S:
            printed = now.waited_s
            err.print(Text(line), soft_wrap=True)

    with err.status(doing) as status:
        yield show


def print_status(status: Status) -> None:
    """Print a deployment's state as tables: the endpoint, the archives, and the models not loaded in the last hour."""
    err_note = f" ({status.failure_reason})" if status.failure_reason else ""
    facts = (
        ("endpoint", f"{status.endpoint_name}: {status.endpoint_status}{err_note}"),
        ("topology", status.topology),
        ("instances", f"{status.instance_count} x {status.instance_type}"),
        *(_component_facts(status.component) if status.component else ()),
        ("generation", status.generation),
        ("archives at", status.model_data_url),
        *(() if status.component else (("models loaded now", _loaded(status)),)),
    )
    print_table(status.stack_name, ("", ""), facts)
    # The content digest of an archive that holds all models has the prefix "bundle-", which is not printed.
    digests = {name: digest.rpartition("-")[2][:12] for name, digest in status.archives.items()}
    rows = [(n, d, "push" if n in status.not_in_outputs else "deploy") for n, d in digests.items()]
    print_table("Archives in the live generation", ("archive", "content", "published by"), rows)
    if status.load_failures:
        failures = [(failure.model, failure.reason) for failure in status.load_failures]
        print_table("Not loaded in the last hour", ("model", "reason"), failures)


def _loaded(status: Status) -> object:
    return "not reported yet" if status.loaded_models is None else status.loaded_models


def _component_facts(component: ComponentStatus) -> Iterator[tuple[str, str]]:
    reason = f" ({component.failure_reason})" if component.failure_reason else ""
    yield "component", f"{component.name}: {component.status}{reason}"
    yield "copies", f"{component.current_copies} run, {component.desired_copies} desired"
    bounds = component.bounds
    yield "scaling", "none" if bounds is None else f"{bounds.minimum} to {bounds.maximum} copies"
    if component.current_copies:
        return
    if component.desired_copies:
        yield "waking", "calls fail until the first copy runs, or wait for it (`cohost invoke --wake`)"
    elif bounds is None:
        yield "asleep", "nothing scales it: only `cohost wake` wakes it"
    elif bounds.suspended:
        yield "asleep", "until `cohost wake`: neither a call nor the schedule wakes it"
    else:
        yield "asleep", "the next call wakes it, and fails for about ten minutes unless it waits (--wake)"


def print_probes(probes: Sequence[Probe] | None) -> None:
    """Print the outcome of each model's probe; `probes` is None if none was requested, [] if no container runs."""
    if probes is None:
        out.print("The models were not called; `cohost status --probe` calls each.")
    elif not probes:
        out.print("No model was called: no copy runs, and a call would wake one.")
    else:
        rows = [(one.model, one.verdict.value, f"{one.milliseconds:.0f}", one.detail) for one in probes]
        print_table("Models, by calling them", ("model", "verdict", "ms", "answer"), rows)


def print_answer(texts: Sequence[str], answer: object) -> None:
    """Print one line per text: the text's labels with scores, or the dimensions of its embedding."""
    items = answer if isinstance(answer, list) else [answer]
    if len(items) != len(texts):
        print_json(answer)
        return
    print_table("Answer", ("text", "result"), [(text, _summary(item)) for text, item in zip(texts, items, strict=True)])


def _summary(item: object) -> str:
    match item:
        case {"label": label, "score": float(score)}:
            return f"{label} {score:.4f}"
        case {"labels": list(labels), "scores": list(scores)}:
            return ", ".join(f"{label} {score:.4f}" for label, score in zip(labels, scores, strict=True))
        case [{"label": _}, *_]:
            return ", ".join(map(_summary, item))
        case [[[float(), *_] as token, *_] as tokens]:
            return f"{len(tokens)} tokens x {len(token)} dimensions, first {token[0]:.4f}"
        case [float() as first, *_]:
            return f"{len(item)} dimensions, first {first:.4f}"
        case _:
            return json.dumps(item, ensure_ascii=False)
