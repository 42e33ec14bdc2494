"""Checks of command lines in the documentation: their program, subcommand and options exist."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import botocore.session
import typer.main
from botocore import xform_name

from cohost import cli

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROJECT: Final = Path(__file__).parents[2]
CDK: Final = PROJECT / "node_modules/aws-cdk/lib/cli/cli-type-registry.json"
# Programs of the machine, of which only their being there can be held.
PLAIN: Final = frozenset({".", "cat", "cd", "cp", "curl", "echo", "export", "git", "pip", "pre-commit", "test", "uv"})
_STACK_FILES: Final = "stacks/*_stack.py"
_END: Final = frozenset({"&&", "||", ";", "|", "&"})


def faults(text: str) -> list[str]:
    """Return the faults of the commands in a shell text, one line each; an empty list if there are none."""
    return [f"`{shlex.join(command)}`: {fault}" for command in commands(text) for fault in _check(command)]


def commands(text: str) -> Iterator[list[str]]:
    """Return each simple command of a shell text as a list of words, including commands in $(…)."""
    for line in text.replace("\\\n", " ").splitlines():
        for inner in re.findall(r"\$\(([^()]*)\)", line):
            yield from commands(inner)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _END:
                command.append(word)
            elif command:
                yield command
                command = []


def _check(command: Sequence[str]) -> Iterator[str]:
    words = [word for word in command if word not in {"<", ">"}]
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *rest = words or ["test"]
    checks = {"cohost": cohost, "make": _make, "cdk": _cdk, "locust": _locust, "aws": _aws, "python": _python}
    if program in checks:
        yield from checks[program](rest)
    elif program not in PLAIN and program != "eval":
        yield f"unknown program {program!r}; allowed: {', '.join(sorted({*checks, *PLAIN}))}"


def cohost(words: Sequence[str]) -> Iterator[str]:
    """Return the subcommands and options of a cohost command line that the command does not have."""
    command: Any = typer.main.get_command(cli.app)
    rest = list(words)
    while rest and (below := getattr(command, "commands", {})):
        if rest[0] not in below:
            # A command may do something by itself beside having subcommands.
            if not command.invoke_without_command or not rest[0].startswith("-"):
                yield f"there is no subcommand {rest[0]!r}; allowed: {', '.join(below)}"
            break
        command = below[rest.pop(0)]
        command = command.load() if isinstance(command, cli.LazyCommand) else command
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-") and (option := word.partition("=")[0]) not in {*known, "--help"}:
            yield f"there is no option {option}; allowed: {', '.join(sorted(known))}"


def _make(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if "=" not in word and word not in targets():
            yield f"there is no target {word!r}; allowed: {', '.join(sorted(targets()))}"


@functools.cache
def targets() -> frozenset[str]:
    """The Makefile's targets."""
    return frozenset(re.findall(r"^([a-z][a-z-]*):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


@functools.cache
def stacks() -> frozenset[str]:
    """The names of the project's stacks."""
    texts = [path.read_text() for path in PROJECT.glob(_STACK_FILES)]
    return frozenset(name for text in texts for name in re.findall(r"class (\w+Stack)\(", text))


@functools.cache
def _cdk_options() -> dict[str, frozenset[str]]:
    """Return the options of each subcommand of the installed cdk."""
    registry = json.loads(CDK.read_text(encoding="utf-8"))
    return {
        name: frozenset(f"--{option}" for option in {**registry["globalOptions"], **command.get("options", {})})
        for name, command in registry["commands"].items()
    }


def _cdk(words: Sequence[str]) -> Iterator[str]:
    subcommand, *rest = words or [""]
    options = _cdk_options()
    if subcommand not in options:
        yield f"cdk has no subcommand {subcommand!r}; allowed: {', '.join(options)}"
        return
    for word in rest:
        if word.endswith("Stack") and word not in stacks():
            yield f"there is no stack {word!r}; allowed: {', '.join(sorted(stacks()))}"
        option = re.sub(r"^--no-", "--", word.partition("=")[0])
        if word.startswith("--") and option not in options[subcommand]:
            yield f"cdk {subcommand} has no option {word}"


@functools.cache
def _locust_help() -> frozenset[str]:
    # In a process of its own: Locust patches the standard library when it is imported.
    command = [sys.executable, "-m", "locust", "-f", "load_tests/encoders.py", "--help"]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown))


def _locust(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in _locust_help():
            yield f"Locust has no option {word}"
        if word.endswith(".py") and not (PROJECT / word).is_file():
            yield f"there is no file {word}"


@functools.cache
def _aws_operations(service: str) -> dict[str, frozenset[str]]:
    session = botocore.session.get_session()
    if service not in session.get_available_services():
        return {}
    model = session.get_service_model(service)
    return {
        xform_name(name, "-"): frozenset(
            f"--{xform_name(member, '-')}" for member in getattr(model.operation_model(name).input_shape, "members", ())
        )
        for name in model.operation_names
    }


def _aws(words: Sequence[str]) -> Iterator[str]:
    service, operation, *rest = [*words, "", ""][: max(2, len(words))]
    operations = _aws_operations(service)
    if operation not in operations:
        yield f"AWS's {service!r} has no operation {operation!r}"
        return
    for word in rest:
        if word.startswith("--") and word not in {*operations[operation], "--region", "--output", "--query"}:
            yield f"{service} {operation} has no option {word}"


def _python(words: Sequence[str]) -> Iterator[str]:
    if words and words[0] == "-m":
        folder = PROJECT / words[1].replace(".", "/")
        if not folder.is_dir() and not folder.with_suffix(".py").is_file():
            yield f"there is no module {words[1]}"
    elif words and not (PROJECT / words[0]).is_file():
        yield f"there is no file {words[0]}"
