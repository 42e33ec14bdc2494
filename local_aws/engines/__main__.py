"""`python -m local_aws.engines run|report`, the program that `cohost local run` and `cohost local report` start."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from cohost.callers import TOKEN_HEADER, TOKEN_VARIABLE
from cohost.catalog_file import load_catalog
from cohost.commands.console import answer_in_json, err, out, print_error, print_fault, print_json, print_table
from cohost.errors import CohostError
from local_aws.engines.djl import DjlEngine
from local_aws.engines.docker import DockerEngine
from local_aws.engines.embedded import EmbeddedEngine
from local_aws.engines.engine import DEFAULT_PORT
from local_aws.engines.report import report_on
from local_aws.engines.serving import running, servers_of, setup_for
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from local_aws.engines.engine import Engine
    from local_aws.engines.report import Report, Server
    from local_aws.engines.serving import RunningEngine

_START_TIMEOUT_S = 600.0
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 for success, 1 for a fault or for models that do not fit, 130 after Ctrl-C."""
    options = command_line().parse_args(arguments)
    answer_in_json(options.json)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options) if options.command == "run" else _report(options)
    except CohostError as error:
        print_error(error)
        return 1
    except KeyboardInterrupt:
        err.print("Stopped.")
        return _INTERRUPTED


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command lines with which `cohost local run` and `report` start this program."""
    parser = argparse.ArgumentParser(prog="python -m local_aws.engines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="serve a catalog's models until Ctrl-C")
    run.add_argument("--engine", choices=("embedded", "docker", "djl"), default="embedded")
    run.add_argument("--catalog", type=Path, required=True)
    run.add_argument("--port", type=int, default=DEFAULT_PORT)
    run.add_argument("--djl-home", type=Path)
    run.add_argument("--hub", type=Path, action="append", default=[])
    run.add_argument("--check", action="store_true", help="load the models, print the report and stop")
    report = commands.add_parser("report", help="print the models and workers of a running server")
    for command in (run, report):
        command.add_argument("--state", type=Path, required=True)
        command.add_argument("--json", action="store_true")
    return parser


def _run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.catalog).catalog
    engine = _engine(options)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    hubs = [*options.hub, *default_roots()]
    setup = setup_for(catalog, state=options.state, port=options.port, hubs=hubs, region=region)
    err.print(Text(f"Starting the {engine.name} engine; its output goes to {setup.scratch / engine.name}.log"))
    with running(engine, catalog, setup, start_timeout_s=_START_TIMEOUT_S, warn=_warn) as served:
        _show_served(served, as_json=options.json)
        if options.check:
            return 1 if served.faults else 0
        _print_access(served.server)
        signal.pause()
    return 0


def _print_access(server: Server) -> None:
    err.print(Text(f"Serving at {server.url} until Ctrl-C; `cohost local report` tells what it holds."))
    err.print(Text("It answers those alone who send the token of this start, for example:"))
    err.print(Text(f"curl --header '{TOKEN_HEADER}: {server.token}' {server.url}/models"), soft_wrap=True)
    err.print(Text(f"For `locust --host {server.url}`: export {TOKEN_VARIABLE}={server.token}"), soft_wrap=True)


def _warn(text: str) -> None:
    err.print(Text(f"warning: {text}"), soft_wrap=True)


def _engine(options: argparse.Namespace) -> Engine:
    if options.engine == "docker":
        return DockerEngine()
    return DjlEngine(options.djl_home) if options.engine == "djl" else EmbeddedEngine()


def _report(options: argparse.Namespace) -> int:
    reports = [report_on(server) for server in servers_of(options.state)]
    if options.json:
        print_json([report.content() for report in reports])
    else:
        for report in reports:
            _show(report)
            _show_faults(report.faults)
    return 1 if any(report.faults for report in reports) else 0


def _show_served(served: RunningEngine, *, as_json: bool) -> None:
    if as_json:
        print_json(served.content())
        return
    rows = [(load.name, f"{load.seconds:.1f}", load.fault or "loaded") for load in served.loads]
    print_table("Loads", ("model", "seconds", "outcome"), rows)
    _show(served.report)
    _show_faults(served.faults)


def _show(report: Report) -> None:
    server = report.server
    print_table(
        f"Models of {server.name} at {server.url}",
        ("model", "status", "workers", "waiting", "dtype"),
        [(m.name, m.status, f"{m.workers} of {m.max_workers}", m.waiting, m.dtype) for m in report.models],
    )
    rows = [(p.pid, p.role, p.resident_mb, p.gpu_mb) for p in report.processes]
    total = ("all", "", report.resident_mb, report.gpu_mb)
    print_table("Processes", ("process", "role", "resident MiB", "GPU MiB"), [*rows, total])
    if report.gpus:
        rows_of_gpus = [(gpu.index, gpu.name, f"{gpu.used_mb} of {gpu.total_mb}") for gpu in report.gpus]
        print_table("GPUs of this machine", ("GPU", "name", "MiB used"), rows_of_gpus)


def _show_faults(faults: Sequence[str]) -> None:
    for fault in faults:
        print_fault(fault)
    if not faults:
        out.print("Everything is loaded and fits.")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
