"""Run the `cohost` command: find the subcommand in a table, import and call it, and turn errors into exit codes.

Each subcommand parses its arguments, calls one function of the core, and prints. A subcommand's module is imported only
when the subcommand is called, so that `cohost --help` loads neither boto3 nor pydantic.

Exit codes: 0 success; 1 an error, printed as one line on stderr; 2 wrong usage; 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from cohost.archives.errors import CodedError
from cohost.commands import console

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

_MODULES: Final = Path(__file__).parent / "commands"
COMMANDS: Final = {
    "render": "archives.render",
    "bundle": "archives.bundle",
    "verify": "archives.verify",
    "push": "archives.push",
    "demo": "local.demo",
    "plan": "plan.plan",
    "cost": "cost.cost",
    "diff": "cost.diff",
    "simulate": "simulate.simulate",
    "bench": "report.bench",
    "report": "report.report",
    "wake": "scaling.wake",
    "sleep": "scaling.sleep",
    "expire": "scaling.expire",
    "preflight": "deploy.preflight",
    "deploy": "deploy.deploy",
    "cleanup": "cleanup.cleanup",
    "orphans": "cleanup.orphans",
    "rights": "rights.rights",
    "export-onnx": "onnx.export_onnx",
    "engines": "plan.engines",
    "rollback": "rollback.rollback",
    "compare": "report.compare",
    "invoke": "calls.invoke",
    "status": "calls.status",
    "models": "plan.models_app",
    "local": "local.local_app",
    "prices": "cost.prices_app",
    "weights": "weights.weights_app",
}
"""Each subcommand's module in cohost/commands, and its function there, or the Typer of a group."""

_SUMMARY: Final = r'^(?:def {0}\(.*?"""|@{0}\.callback.*?"""|{0} = typer\.Typer\(\s*help=")([^"\n]+)'
"""The first line of a function's docstring, of that of a group's callback, or a group's own help."""


class LazyCommand(TyperCommand):
    """A subcommand that is imported when it is called; its line in `cohost --help` is read from its source text."""

    def __init__(self, name: str, place: str) -> None:
        self._module, _, self._attribute = place.partition(".")
        source = (_MODULES / f"{self._module}.py").read_text(encoding="utf-8")
        found = re.search(_SUMMARY.format(self._attribute), source, re.MULTILINE | re.DOTALL)
        super().__init__(name, help=found and found[1])

    def load(self) -> Command:
        """Import the subcommand."""
        loaded = getattr(importlib.import_module(f"cohost.commands.{self._module}"), self._attribute)
        if isinstance(loaded, typer.Typer):
            return typer.main.get_group(loaded)
        single = typer.Typer(add_completion=False)
        single.command(self.name)(loaded)
        return typer.main.get_command(single)

    def make_context(self, *given: Any, **named: Any) -> Context:
        """Import the subcommand and let it parse the arguments, so that the imported subcommand is then called."""
        return self.load().make_context(*given, **named)


class LazyGroup(TyperGroup):
    """The group of all subcommands in the table `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: LazyCommand(name, place) for name, place in COMMANDS.items()}

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Print the list of commands without typer.rich_utils, whose imports would take a third of `--help`'s time."""
        del formatter
        usage = f"{ctx.command_path} [OPTIONS] COMMAND [ARGS]..."
        console.out.print(Text.assemble("\n ", ("Usage: ", "yellow"), f"{usage}\n\n {self.help}\n"))
        options: Any = self.get_params(ctx)
        console.print_panel("Options", [(", ".join(one.opts), one.help) for one in options])
        console.print_panel("Commands", [(name, str(one.help)) for name, one in self.commands.items()])


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """Several encoder models on one SageMaker endpoint."""


def main() -> None:
    """Run the command; on a known error, print one line on stderr and exit with the documented code."""
    try:
        app()
    except CodedError as error:
        console.print_error(error)
    except Exception as error:
        if not _is_from_aws(error):
            raise
        console.print_error(
            CodedError(
                "aws-error",
                "AWS",
                str(error).rstrip("."),
                fix="check credentials, region and rights (AWS_PROFILE, AWS_REGION)",
            )
        )
    else:
        return
    sys.exit(console.EXIT_FAULT)


def _is_from_aws(error: Exception) -> bool:
    """Return True for an error of boto3, without importing boto3: if it is not loaded, the error cannot be its own."""
    botocore = sys.modules.get("botocore.exceptions")
    return botocore is not None and isinstance(error, (botocore.ClientError, botocore.BotoCoreError))
