"""The subcommands that run the local AWS emulator: `cohost local …` and `cohost demo`."""

from __future__ import annotations

import os
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import (
    OFFLINE_CATALOG,
    CatalogOption,
    JsonOption,
    StateOption,
    check_packages,
    load_with_warnings,
)
from cohost.deploy import local_aws as local
from cohost.errors import LocalError


class Engine(StrEnum):
    """The values of `--engine`: the programs that can serve a catalog's archives on this machine."""

    EMBEDDED = "embedded"
    DOCKER = "docker"
    DJL = "djl"


_NEEDED = ("moto", "starlette", "torch", "transformers", "uvicorn")

local_app = typer.Typer(help="The local AWS emulator, to try a deploy on this machine.", no_args_is_help=True)


def demo(
    state: StateOption = Path(".cohost/demo"),
    port: Annotated[int, typer.Option("--port", help="The port on 127.0.0.1; 0 chooses a free port.")] = 0,
) -> None:
    """Deploy, call, change and remove a small endpoint on this machine, without an AWS account.

    Example: cohost demo
    """
    check_packages(_NEEDED, "local")
    # The demo replaces this process, so that only the demo receives Ctrl-C and it can clean up.
    os.execv(  # noqa: S606 - our own module, no shell
        sys.executable,
        [sys.executable, "-m", "local_aws.demo", "--state", str(state), "--port", str(port)],
    )


@local_app.command()
def up(
    port: Annotated[
        int, typer.Option("--port", envvar="COHOST_PORT", help="The port on 127.0.0.1; 0 chooses a free port.")
    ] = local.DEFAULT_PORT,
    catalog: CatalogOption = OFFLINE_CATALOG,
    state: StateOption = local.DEFAULT_STATE,
    hub: Annotated[
        list[Path] | None, typer.Option("--hub", help="A further folder of models, each in org/name.")
    ] = None,
    act_as: Annotated[
        str | None, typer.Option("--as", metavar="ROLE_ARN", help="Judge your own calls by the rights of this role.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the local AWS emulator, and print the environment variables to export.

    Example: eval "$(cohost local up)"
    """
    check_packages(_NEEDED, "local")
    load_with_warnings(catalog)
    with console.err.status("Starting the AWS on this machine"):
        server = local.start(port=port, state=state, catalog=catalog, hub=hub or [], act_as=act_as)
    _print_environment(server, as_json=as_json)
    end = local.subcommand("down", state)
    console.err.print(Text(f"Running at {server.url} until `{end}`; everything in it is gone then."), soft_wrap=True)


@local_app.command()
def env(
    state: StateOption = local.DEFAULT_STATE,
    administrator: Annotated[
        bool,
        typer.Option("--administrator", help="Print the key of an administrator, after `cohost local up --as`."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the environment variables of the running local AWS emulator, for another shell or after a restart.

    Example: eval "$(cohost local env)"
    """
    server = local.find(state)
    if server is None:
        raise LocalError(
            "server-missing",
            f"state {state}",
            "no server runs there",
            allowed="the folder of one that runs",
            fix=f"start one with `{local.subcommand('up', state)}`, or name its folder with --state",
        )
    _print_environment(server, as_json=as_json, administrator=administrator)


def _print_environment(server: local.LocalServer, *, as_json: bool, administrator: bool = False) -> None:
    environment = server.environment(server.catalog, administrator=administrator)
    if as_json:
        console.print_json({"url": server.url, "pid": server.pid, "environment": environment})
        return
    for name, value in environment.items():
        console.out.print(Text(f"export {name}={shlex.quote(value)}"), soft_wrap=True)


@local_app.command()
def down(state: StateOption = local.DEFAULT_STATE) -> None:
    """Stop the local AWS emulator with all its containers.

    Example: cohost local down
    """
    if local.stop(state):
        console.err.print("Stopped.")
    else:
        console.err.print(Text(f"Nothing runs with the state folder {state}."))


@local_app.command()
def run(
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="The server: the embedded container, the image in Docker, or your DJL Serving.",
        ),
    ] = Engine.EMBEDDED,
    catalog: CatalogOption = OFFLINE_CATALOG,
    port: Annotated[int, typer.Option("--port", help="The port on 127.0.0.1; 0 chooses a free port.")] = 8084,
    djl_home: Annotated[
        Path | None,
        typer.Option("--djl-home", help="The folder of your DJL Serving (default: djl-serving on PATH)."),
    ] = None,
    hub: Annotated[
        list[Path] | None, typer.Option("--hub", help="A further folder of models, each in org/name.")
    ] = None,
    state: StateOption = local.DEFAULT_STATE,
    check: Annotated[
        bool,
        typer.Option("--check", help="Stop after the report, with exit code 1 if a model does not fit."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a catalog's archives without an endpoint: load every model, print a report, and run until Ctrl-C.

    Example: cohost local run --engine docker --catalog model_configs/encoders.yaml --check
    """
    arguments = ["--engine", engine.value, "--catalog", str(catalog), "--port", str(port), "--state", str(state)]
    arguments += [] if djl_home is None else ["--djl-home", str(djl_home)]
    arguments += [part for root in hub or [] for part in ("--hub", str(root))]
    _become_engines("run", [*arguments, *(["--check"] if check else []), *(["--json"] if as_json else [])])


@local_app.command()
def report(state: StateOption = local.DEFAULT_STATE, as_json: JsonOption = False) -> None:
    """Show the running models and workers, the memory of their processes on host and GPU, and if all models fit.

    Example: cohost local report --json
    """
    _become_engines("report", ["--state", str(state), *(["--json"] if as_json else [])])


def _become_engines(command: str, arguments: list[str]) -> None:
    """Replace this process by one that runs `local_aws.engines`; otherwise this process would receive Ctrl-C too.

    On Ctrl-C the process that runs `local_aws.engines` stops its server.
    """
    check_packages(_NEEDED, "local")
    os.execv(  # noqa: S606 - our own module, no shell
        sys.executable, [sys.executable, "-m", "local_aws.engines", command, *arguments]
    )
