"""The subcommands that measure: `cohost bench` runs the standard load test, `cohost report` shows its results."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import boto3
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import CatalogOption, StackOption
from cohost.endpoint.stack_outputs import DEFAULT_STACK
from cohost.errors import CohostError

if TYPE_CHECKING:
    from cohost.report.page import Report, Written

DEFAULT_RESULTS = Path(".cohost/load")
LOAD_CATALOG = Path("model_configs/encoders.yaml")
SWEEP = "1,2,4,8,16,32"
CALLERS = "1,2,4,8"
SHORT_SWEEP, SHORT_CALLERS = "1,8", "1,8"
EXIT_FAULT, EXIT_INVALID, EXIT_INTERRUPTED = 1, 3, 130
PROGRESS_FILE = "progress.json"
_POLL_S = 0.25


class BenchError(CohostError):
    """The load test could not be run, or measured nothing."""


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of runs, in the order to be shown.", metavar="RESULT...")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to (default: `report` in the first result).")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics/--no-metrics", help="Ask CloudWatch for the endpoint's side of the same minutes.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON report too.")] = False,
) -> None:
    """Write the report on one run or several: Markdown, JSON with its schema, an HTML page.

    Example: cohost report .cohost/load/20270301-101500 .cohost/load/20270301-113000 --out comparison
    """
    written = _write(results, out or results[0] / "report", metrics=metrics)
    if as_json:
        console.print_json(json.loads(written.json.read_text(encoding="utf-8")))
    else:
        _show(written)


def bench(
    stack: StackOption = DEFAULT_STACK,
    host: Annotated[
        str | None, typer.Option("--host", help="A container's URL in place of the stack's endpoint.")
    ] = None,
    models: Annotated[str | None, typer.Option("--models", help="Which models: name=weight,… (default: all).")] = None,
    catalog: CatalogOption = LOAD_CATALOG,
    task: Annotated[
        str | None, typer.Option("--task", help="The task of models that the catalog does not have.")
    ] = None,
    hub: Annotated[
        list[Path] | None, typer.Option("--hub", help="A folder of tokenizers laid out as org/name.")
    ] = None,
    pad_to_max: Annotated[
        bool,
        typer.Option("--pad-to-max/--mixed-lengths", help="Texts of the models' maximum length, or of mixed lengths."),
    ] = True,
    short: Annotated[
        bool, typer.Option("--short", help="Batch sizes and callers 1 and 8 only, for a few seconds each.")
    ] = False,
    label: Annotated[str | None, typer.Option("--label", help="What the report calls this run.")] = None,
    price: Annotated[
        float | None, typer.Option("--price", min=0, help="USD an hour of all instances (default: the price list).")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Generator processes.")] = 1,
    wake: Annotated[
        bool, typer.Option("--wake", help="First wait for a scale-to-zero endpoint that is at zero.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for result and report.")] = None,
) -> None:
    """Run the standard load test and write its report: warm-up, batch sizes with one caller, callers with one text.

    Ctrl-C ends it early; what was measured by then is reported.

    Example: cohost bench --label "stock handler"
    """
    folder = out or DEFAULT_RESULTS / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    given: dict[str, object] = {"--stack": stack, "--host": host, "--models": models, "--catalog": catalog}
    given |= {"--task": task, "--label": label, "--price": price, "--out": folder}
    arguments = [part for name, value in given.items() if value is not None for part in (name, str(value))]
    arguments += [part for path in hub or () for part in ("--hub", str(path))]
    arguments += ["--pad-to-max"] if pad_to_max else []
    arguments += ["--wake"] if wake else []
    arguments += ["--processes", str(processes)] if processes > 1 else []
    _bench(_protocol(short=short) + arguments, folder)


def _bench(arguments: list[str], folder: Path) -> NoReturn:
    """Measure, report, and end with Locust's exit code."""
    code, interrupted = _run(arguments, folder)
    if not (folder / "run.json").is_file():
        if interrupted:
            raise typer.Exit(EXIT_INTERRUPTED)
        raise BenchError(f"nothing was measured; fix: see the lines above, and {folder / 'locust.log'}")
    _show(_write([folder], folder / "report", metrics=True))
    raise typer.Exit(EXIT_INTERRUPTED if interrupted else code)


def _protocol(*, short: bool) -> list[str]:
    batches, callers, seconds, warmup = (
        (SHORT_SWEEP, SHORT_CALLERS, "4", "1") if short else (SWEEP, CALLERS, "20", "10")
    )
    sweeps = ["--sweep-batch", batches, "--sweep-concurrency", callers]
    return ["--headless", "--only-summary", *sweeps, "--measure", seconds, "--warmup", warmup]


def _run(arguments: list[str], folder: Path) -> tuple[int, bool]:
    """Run Locust and show its progress; return its exit code and whether it was interrupted."""
    locustfile = _locustfile()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "locust", "-f", str(locustfile), *arguments]
    with (folder / "locust.log").open("w", encoding="utf-8") as log:
        # Ctrl-C reaches the whole foreground group: Locust ends its run and writes what it has, and we wait for that.
        interrupts: list[float] = []
        previous = signal.signal(signal.SIGINT, lambda *_: interrupts.append(time.monotonic()))
        try:
            with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as child:  # noqa: S603 - our own module
                _follow(child, folder)
        finally:
            signal.signal(signal.SIGINT, previous)
    if child.returncode and not (folder / "run.json").is_file():
        for line in _faults(folder / "locust.log"):
            console.err.print(Text(line), soft_wrap=True)
    return child.returncode, bool(interrupts)


def _follow(child: subprocess.Popen[bytes], folder: Path) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("step {task.completed:g} of {task.total:g}"))
    with Progress(*columns, TimeElapsedColumn(), console=console.err, transient=True) as progress:
        bar = progress.add_task("starting", total=1)
        while child.poll() is None:
            if facts := _facts(folder / PROGRESS_FILE):
                progress.update(bar, description=facts["phase"], completed=facts["step"], total=facts["steps"])
            time.sleep(_POLL_S)


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _faults(log: Path) -> list[str]:
    """Return Locust's error lines, or its last three lines if it has none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.startswith(("error:", "locust: error:"))] or lines[-3:]


def _locustfile() -> Path:
    """Locate the locustfile without importing it: load_tests depends on this package, not the other way round."""
    check_packages(("locust", "geventhttpclient", "numpy", "load_tests"))
    spec = importlib.util.find_spec("load_tests")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) / "encoders.py"


def _write(results: list[Path], out: Path, *, metrics: bool) -> Written[Report]:
    check_packages(("numpy",))
    from cohost.report.page import write_report  # a deploy machine has no numpy

    with console.err.status("Writing the report"):
        return write_report(results, out, boto3.Session() if metrics else None)


def check_packages(names: tuple[str, ...]) -> None:
    """Check that the packages of load tests and reports are installed.

    Raises:
        BenchError: some are missing.
    """
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        msg = (
            f"this command needs {', '.join(missing)}; allowed: an environment with the group `load`; fix: run "
            "`make setup`, or `uv sync --group load`"
        )
        raise BenchError(msg)


def _show(written: Written[Report]) -> None:
    from cohost.report.markdown import headline_rows

    columns = ("model", "p50", "p90", "p95", "p99 ms", "calls", "items/s at 8", "at 8 : at 1", "USD per 1M")
    for summary in written.content.runs:
        rows = headline_rows(summary)
        title = f"{rows[0][0]}, {rows[0][-1]}" if rows else f"{summary.record.label}: nothing was measured"
        console.print_table(title, columns, [row[1:-1] for row in rows])
        for mark in summary.record.marks:
            console.print_warning(f"{summary.record.label}: {'INVALID: ' if mark.invalid else ''}{mark.message}")
    console.err.print(Text(f"Written: {written.page}, {written.markdown.name}, {written.json.name}"), soft_wrap=True)
