"""`cohost rollback --list`: the stored generations, as a table and as JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cohost import cli
from cohost.archives.history import Earlier
from cohost.commands import rollback as cli_rollback

NOW = {"nli": {"batch_size": "8"}}
TEMPLATE = {"Resources": {"Store": {"Type": "Custom::LmiModelStore", "Properties": {"Models": NOW}}}}
EARLIER = Earlier(
    generation="aaaaaaaaaaaa",
    left="2026-11-30T10:00:59.000001Z",
    properties={"Models": {"nli": {"batch_size": "4"}, "mini": {}}},
)


@pytest.fixture(autouse=True)
def deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a stack with one earlier generation, without a call of AWS."""
    deployment = SimpleNamespace(
        topology="multi-model", region="us-east-1", bucket="b", prefix="p/", generation="bbbbbbbbbbbb"
    )
    store = SimpleNamespace(history=SimpleNamespace(earlier=lambda: (EARLIER,)))
    monkeypatch.setattr("boto3.Session", lambda: SimpleNamespace(client=lambda *_, **__: None))
    monkeypatch.setattr(cli_rollback, "read_deployment", lambda *_: deployment)
    monkeypatch.setattr(cli_rollback, "read_template", lambda *_: TEMPLATE)
    monkeypatch.setattr(cli_rollback, "ModelStore", lambda *_: store)


def run(*arguments: str) -> str:
    """Run `cohost rollback` and return what it prints."""
    result = CliRunner().invoke(cli.app, ["rollback", *arguments], catch_exceptions=False, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_says_since_when_and_what_would_change() -> None:
    """The table has the minute of the replacement, and the effect of a rollback on each model."""
    told = run("--list")
    for text in ("live: bbbbbbbbbbbb", "aaaaaaaaaaaa", "2026-11-30 10:00 UTC", "mini: comes back", "batch_size 8 → 4"):
        assert text in told


def test_list_for_scripts_has_the_whole_moment() -> None:
    """The JSON has the full time of the replacement."""
    (one,) = json.loads(run("--list", "--json"))["earlier"]
    expected: dict[str, Any] = {
        "generation": "aaaaaaaaaaaa",
        "served_until": "2026-11-30T10:00:59.000001Z",
        "models": ["nli", "mini"],
        "changes": ["mini: comes back", "nli: batch_size 8 → 4"],
    }
    assert one == expected
