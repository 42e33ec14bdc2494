"""The program `python -m local_aws.demo`: run the demo's steps, print progress and a summary, end all processes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.table import Table
from rich.text import Text

from cohost.commands.console import err, out, print_error
from cohost.deploy import local_aws as local
from cohost.errors import CohostError
from local_aws.demo.cdk import PROJECT, Cdk
from local_aws.demo.script import Script, point_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

OFFLINE = PROJECT / "model_configs" / "offline.yaml"
EXIT_FAULT = 1
EXIT_INTERRUPTED = 130

Step = tuple[str, "Callable[[], str]"]


def main(
    state: Annotated[Path, typer.Option(help="The folder for logs, archives and the working catalog.")] = Path(
        ".cohost/demo"
    ),
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 chooses a free port.")] = 0,
) -> None:
    """Deploy, call, change and remove a small endpoint on this machine, without an AWS account."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _run(state.resolve(), port)
    except CohostError as error:
        print_error(error)
        sys.exit(EXIT_FAULT)
    except KeyboardInterrupt:
        err.print("Stopped before the end; the AWS on this machine is gone with everything in it.")
        sys.exit(EXIT_INTERRUPTED)


def _run(state: Path, port: int) -> None:
    local.stop(state)
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    begun = time.monotonic()
    rows: list[tuple[str, str, float]] = []
    try:
        with err.status("Starting the AWS on this machine"):
            server = local.start(port=port, state=state, catalog=OFFLINE)
        rows.append(("start", f"an AWS for one machine at {server.url}", time.monotonic() - begun))
        _print_step("", *rows[0])
        point_at(server.environment())
        script = Script(cdk=Cdk(environment=server.environment(), out=state), offline=OFFLINE, work=state)
        rows += _run_steps(_steps(script))
    finally:
        local.stop(state)
        _end_children()
    _print_summary(rows, time.monotonic() - begun)


def _end_children() -> None:
    """Kill all child processes: an interrupted step may leave some running, such as a `cdk` command."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _steps(script: Script) -> Sequence[Step]:
    return (
        ("cdk bootstrap", script.bootstrap),
        ("cdk deploy", script.deploy),
        ("call every model", script.invoke),
        ("compare sentences", script.compare),
        ("cdk diff", script.diff),
        ("add a model", script.add),
        ("change a model", script.roll),
        ("cdk destroy", script.destroy),
    )


def _run_steps(steps: Sequence[Step]) -> list[tuple[str, str, float]]:
    rows = []
    for number, (name, step) in enumerate(steps, start=1):
        begun = time.monotonic()
        with err.status(f"{name} …"):
            outcome = step()
        rows.append((name, outcome, time.monotonic() - begun))
        _print_step(f"[{number}/{len(steps)}] ", *rows[-1])
    return rows


def _print_step(mark: str, name: str, outcome: str, seconds: float) -> None:
    err.print(Text.assemble((mark, "bold"), (f"{name}: ", "bold green"), f"{outcome} ({seconds:.1f} s)"))


def _print_summary(rows: Sequence[tuple[str, str, float]], seconds: float) -> None:
    table = Table(title=f"The main job, end to end: {seconds:.0f} s", title_justify="left")
    table.add_column("step")
    table.add_column("outcome", overflow="fold")
    table.add_column("seconds", justify="right")
    for name, outcome, took in rows:
        table.add_row(name, Text(outcome), f"{took:.1f}")
    out.print(table)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(main)
