"""`cohost local run` and `cohost local report` pass all options to the module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cohost import cli
from cohost.commands import local as cli_local
from local_aws.engines import __main__ as engines


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands that would replace this process."""
    commands: list[list[str]] = []
    monkeypatch.setattr(cli_local.os, "execv", lambda _, arguments: commands.append(list(arguments)))
    return commands


def test_every_option_of_run_reaches_the_module(executed: list[list[str]]) -> None:
    """The module receives and parses each option of `cohost local run`."""
    arguments = ["--engine", "djl", "--catalog", "c.yaml", "--port", "9", "--state", "s", "--djl-home", "d"]
    arguments += ["--hub", "h1", "--hub", "h2", "--check", "--json"]
    assert CliRunner().invoke(cli.app, ["local", "run", *arguments], catch_exceptions=False).exit_code == 0
    assert executed == [[sys.executable, "-m", "local_aws.engines", "run", *arguments]]
    options = engines.command_line().parse_args(executed[0][3:])
    assert (options.engine, options.port, options.djl_home, options.hub) == (
        "djl",
        9,
        Path("d"),
        [Path("h1"), Path("h2")],
    )
    assert (options.check, options.json, options.state) == (True, True, Path("s"))


def test_run_without_options_serves_the_offline_catalog_embedded(executed: list[list[str]]) -> None:
    """`cohost local run` without options serves the offline catalog in the embedded container on port 8084."""
    CliRunner().invoke(cli.app, ["local", "run"], catch_exceptions=False)
    assert executed[0][4:] == [
        *("--engine", "embedded", "--catalog", "model_configs/offline.yaml", "--port", "8084", "--state", ".cohost")
    ]


def test_report_takes_the_state_folder(executed: list[list[str]]) -> None:
    """`cohost local report` has the option --state like the other commands of `cohost local`."""
    CliRunner().invoke(cli.app, ["local", "report", "--state", "s", "--json"], catch_exceptions=False)
    assert executed == [[sys.executable, "-m", "local_aws.engines", "report", "--state", "s", "--json"]]


def test_an_unknown_engine_is_refused_with_the_known_ones(executed: list[list[str]]) -> None:
    """An unknown engine is rejected with the list of the known ones before a start."""
    result = CliRunner().invoke(cli.app, ["local", "run", "--engine", "podman"])
    assert result.exit_code == 2
    assert executed == []
