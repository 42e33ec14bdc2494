"""The subcommands of the load test and of its results: `cohost bench`, `cohost report` and `cohost compare`."""

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
from cohost.commands.options import CatalogOption, JsonOption, StackOption, check_packages
from cohost.endpoint.stack_outputs import DEFAULT_STACK
from cohost.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cohost.report.page import Report, Written

DEFAULT_RESULTS, DEFAULT_COMPARISON = Path(".cohost/load"), Path(".cohost/compare")
LOAD_CATALOG = Path("model_configs/encoders.yaml")
SWEEP, CALLERS = "1,2,4,8,16,32", "1,2,4,8"
SHORT_SWEEP, SHORT_CALLERS = "1,8", "1,8"
PROGRESS_FILE = "progress.json"
_POLL_S = 0.25

# Column titles, shorter than those on the report's page, so that the table fits a terminal of 80 columns.
_LATENCY, _RATES = ("p50", "p90", "p95", "p99 ms"), ("items/s at 8", "at 8 : at 1", "USD per 1M")


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of load tests, in the order of the report.", metavar="RESULT...")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write to (default: `report` in the first load test)."),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option("--metrics/--no-metrics", help="Add the endpoint's CloudWatch metrics during the load tests."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write the report of one load test or several as Markdown, as JSON with its schema, and as an HTML page.

    Example: cohost report .cohost/load/20270301-101500 .cohost/load/20270301-113000 --out comparison
    """
    written = _write(results, out or results[0] / "report", metrics=metrics)
    if as_json:
        console.print_json(json.loads(written.content.model_dump_json()))
    else:
        _show(written)


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="One load test per design, as a folder or a report.json, in the order of the table.",
            metavar="RESULT...",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = DEFAULT_COMPARISON,
    as_json: JsonOption = False,
) -> None:
    """Write the table that compares designs, from earlier results of `cohost bench`, without a deploy or a call.

    Example: cohost compare .cohost/load/20270301-101500 .cohost/load/20270301-113000
    """
    check_packages(("numpy",), "load")
    from cohost.report.comparison import write_comparison  # only reports need numpy, which a deploy machine lacks

    written = write_comparison(results, out)
    if as_json:
        console.print_json(json.loads(written.content.model_dump_json()))
    else:
        # The last column, the instance type, is left out; the page has it.
        rows = [row[:-1] for row in written.rows]
        console.print_table("Designs compared, all models", ("design", *_LATENCY, *_RATES), rows)
        console.err.print(Text(written.content.measured), soft_wrap=True)
    for weight, text in written.content.notes:
        if weight == "note":
            console.err.print(Text(f"note: {text}"), soft_wrap=True)
        else:
            console.print_warning(text if weight == "warning" else f"{weight.upper()}: {text}")
    _print_files(written)


def bench(
    stack: StackOption = DEFAULT_STACK,
    host: Annotated[
        str | None, typer.Option("--host", help="The URL of a container to call instead of the stack's endpoint.")
    ] = None,
    models: Annotated[
        str | None, typer.Option("--models", help="The models to call, as name=weight,… (default: all models).")
    ] = None,
    catalog: CatalogOption = LOAD_CATALOG,
    task: Annotated[
        str | None, typer.Option("--task", help="The task of those models in --models that the catalog does not have.")
    ] = None,
    hub: Annotated[
        list[Path] | None, typer.Option("--hub", help="A folder with tokenizers in subfolders org/name.")
    ] = None,
    pad_to_max: Annotated[
        bool,
        typer.Option(
            "--pad-to-max/--mixed-lengths", help="Send texts of the models' maximum length, or of mixed lengths."
        ),
    ] = True,
    short: Annotated[
        bool, typer.Option("--short", help="Only 1 and 8 texts per call and 1 and 8 callers, for a few seconds each.")
    ] = False,
    label: Annotated[str | None, typer.Option("--label", help="The name of this run in the report.")] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", min=0, help="USD per hour of all instances (default: the price list)."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="The number of processes that send calls.")] = 1,
    wake: Annotated[
        bool, typer.Option("--wake", help="Before the load test, wait for a copy of a scale-to-zero endpoint.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the results and the report.")] = None,
) -> None:
    """Run the standard load test and write its report: warm-up, several batch sizes, several numbers of callers.

    Ctrl-C ends the load test early; the report then has the results up to that time.

    Example: cohost bench --label "stock handler"
    """
    folder = out or DEFAULT_RESULTS / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    batches, callers, seconds, warmup = (SHORT_SWEEP, SHORT_CALLERS, 4, 1) if short else (SWEEP, CALLERS, 20, 10)
    options: dict[str, object] = {"--sweep-batch": batches, "--sweep-concurrency": callers, "--measure": seconds}
    options |= {"--warmup": warmup, "--stack": stack, "--host": host, "--models": models, "--catalog": catalog}
    options |= {"--task": task, "--label": label, "--price": price, "--out": folder, "--hub": hub}
    options |= {"--processes": processes if processes > 1 else None, "--pad-to-max": pad_to_max, "--wake": wake}
    _bench(["--headless", "--only-summary", *_arguments(options)], folder)


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Yield the command-line arguments for options by name.

    An option with the value True becomes a flag, one with a list is repeated per value, and None and False are omitted.
    """
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                yield name
            elif one is not None and one is not False:
                yield from (name, str(one))


def _bench(arguments: list[str], folder: Path) -> NoReturn:
    """Run the load test, write and show its report, and exit with Locust's exit code."""
    code, interrupted = _run(arguments, folder)
    if not (folder / "run.json").is_file():
        if interrupted:
            raise typer.Exit(console.EXIT_INTERRUPTED)
        raise BenchError(
            "nothing-measured",
            str(folder),
            "has no result of the load test",
            fix=f"correct the fault that the lines above or {folder / 'locust.log'} name",
        )
    written = _write([folder], folder / "report", metrics=True)
    _show(written)
    if code == 0 and not all(summary.record.valid for summary in written.content.runs):
        # CloudWatch had the metrics of the run's last minutes only after Locust had ended.
        code = console.EXIT_INVALID
    raise typer.Exit(console.EXIT_INTERRUPTED if interrupted else code)


def _run(arguments: list[str], folder: Path) -> tuple[int, bool]:
    """Run Locust and show its progress; return Locust's exit code, and True if the user pressed Ctrl-C."""
    locustfile = _locustfile()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "locust", "-f", str(locustfile), *arguments]
    with (folder / "locust.log").open("w", encoding="utf-8") as log:
        # Ctrl-C reaches all processes of the foreground group. Locust then ends its run and writes its result, and this
        # process waits for Locust.
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
    """Return the error lines in Locust's log, or the log's last three lines if it has none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.startswith(("error:", "locust: error:"))] or lines[-3:]


def _locustfile() -> Path:
    """Return the path of the locustfile in the package load_tests.

    The package load_tests imports `cohost`, so `cohost` must not import load_tests.
    """
    check_packages(("locust", "geventhttpclient", "numpy", "load_tests"), "load")
    spec = importlib.util.find_spec("load_tests")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) / "encoders.py"


def _write(results: list[Path], out: Path, *, metrics: bool) -> Written[Report]:
    check_packages(("numpy",), "load")
    from cohost.report.page import write_report  # only reports need numpy, which a deploy machine lacks

    with console.err.status("Writing the report"):
        return write_report(results, out, boto3.Session() if metrics else None)


def _show(written: Written[Report]) -> None:
    from cohost.report.markdown import headline_rows

    for summary in written.content.runs:
        rows = headline_rows(summary)
        title = f"{rows[0][0]}, {rows[0][-1]}" if rows else f"{summary.record.label}: nothing was measured"
        console.print_table(title, ("model", *_LATENCY, "calls", *_RATES), [row[1:-1] for row in rows])
        for mark in summary.record.marks:
            console.print_warning(f"{summary.record.label}: {'INVALID: ' if mark.invalid else ''}{mark.message}")
    _print_files(written)


def _print_files(written: Written[Any]) -> None:
    console.err.print(Text(f"Written: {written.page}, {written.markdown.name}, {written.json.name}"), soft_wrap=True)
