"""`cohost cost`, `cohost diff` and `cohost prices refresh` from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.errors import LocalError, StackError
from cohost.forecast.pricing.price_list import load_prices

if TYPE_CHECKING:
    from click.testing import Result

ROOT = Path(__file__).parents[4]
ENCODERS = str(ROOT / "model_configs" / "encoders.yaml")


def run(*arguments: str) -> Result:
    """Run the command; faults come as exceptions."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def test_comparison_as_data() -> None:
    """The JSON of `cohost cost` has the catalog first, then the measured designs with their reported costs."""
    data = json.loads(run("cost", "--catalog", ENCODERS, "--region", "us-east-1", "--busy-hours", "8", "--json").stdout)
    assert [round(design["per_million"], 2) for design in data["designs"]] == [3.76, 3.76, 20.48, 4.2, 3.76]
    assert data["designs"][0]["price"] == {"usd_per_hour": 1.408, "date": "2026-08-07", "source": "AWS Pricing API"}


def test_table_names_sources() -> None:
    """The table of `cohost cost` has amounts and their sources."""
    result = run("cost", "--catalog", ENCODERS, "--region", "us-east-1")
    assert "20.48" in result.stdout
    assert "104 items/s, measured 2026-08" in result.stdout
    assert "Not counted" in result.stdout


def test_markdown_for_a_pull_request() -> None:
    """A table that GitHub draws."""
    lines = run("cost", "--catalog", ENCODERS, "--region", "us-east-1", "--markdown").stdout.splitlines()
    assert lines[1] == "| --- | --- | --- | --- | --- |"
    assert lines[2].startswith("| this catalog | 1.408 | 1027.84 | 3.76 |")


@pytest.mark.parametrize(("limit", "code"), [("1027.84", 0), ("1027.83", 2), ("0", 2)])
def test_budget_is_held(limit: str, code: int) -> None:
    """`cohost cost --max-monthly` ends with exit code 2 if the cost is above the budget, and with 0 at the budget."""
    assert run("cost", "--catalog", ENCODERS, "--region", "us-east-1", "--max-monthly", limit).exit_code == code


def test_unknown_price_is_over_any_budget() -> None:
    """`--max-monthly` fails with an unknown price, and names the command that fetches prices."""
    result = run("cost", "--catalog", ENCODERS, "--region", "eu-central-9", "--max-monthly", "1000000")
    assert result.exit_code == 2
    assert "unknown" in result.stdout
    assert "cohost prices refresh --region eu-central-9" in result.stderr


def test_refresh_writes_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched prices land in the file that was named, with the day."""
    out = tmp_path / "prices.json"
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    attributes = {"instanceName": "ml.g5.xlarge"}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": {"unit": "Hrs", "pricePerUnit": {"USD": "1.5"}}}}}}
    answer = {"PriceList": [json.dumps({"product": {"attributes": attributes}, "terms": terms})]}
    monkeypatch.setattr("cohost.commands.cost.boto3.client", lambda *_, **__: client)
    with Stubber(client) as stubber:
        stubber.add_response("get_products", answer)
        result = run("prices", "refresh", "--region", "us-east-1", "--out", str(out))
    assert result.exit_code == 0
    renewed = load_prices(out).find("us-east-1", "ml.g5.xlarge")
    assert renewed is not None
    assert (renewed.usd_per_hour, renewed.source) == (1.5, "AWS Pricing API")
    assert load_prices().find("us-east-1", "ml.g5.xlarge") != renewed


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stack that costs 1.408 USD an hour."""
    client = boto3.client("cloudformation", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    outputs = [{"OutputKey": "CostPerHourUsd", "OutputValue": "1.408"}]
    stack = {"StackName": "s", "CreationTime": "2026-01-01", "StackStatus": "CREATE_COMPLETE", "Outputs": outputs}
    monkeypatch.setattr("cohost.commands.cost.boto3.client", lambda *_, **__: client)
    with Stubber(client) as stubber:
        stubber.add_response("describe_stacks", {"Stacks": [stack]})
        yield


def fake_cdk(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    """Install a cdk command that records its calls."""
    path, seen = folder / "cdk", folder / "seen"
    path.write_text(f'#!/bin/sh\necho "$@" > {seen}\nexit {code}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return seen


@pytest.mark.process
@pytest.mark.usefixtures("deployed")
def test_diff_runs_cdk_and_shows_the_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cohost diff` runs `cdk diff` with the catalog, and then prints the change of the bill."""
    seen = fake_cdk(tmp_path, monkeypatch, 0)
    other = tmp_path / "other.yaml"
    other.write_text(Path(ENCODERS).read_text().replace("ml.g5.xlarge", "ml.g6.12xlarge"))
    result = run("diff", "--catalog", str(other), "--region", "us-east-1", "--markdown")
    assert seen.read_text() == f"diff LmiCohostStack --context catalog={other}\n"
    assert "| CostPerHourUsd | 1.408 | 5.752 | +4.34 |" in result.stdout


@pytest.mark.process
@pytest.mark.usefixtures("deployed")
def test_failing_cdk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `cdk diff` fails, `cohost diff` prints the bill and fails too."""
    fake_cdk(tmp_path, monkeypatch, 3)
    with refused("cdk-failed", kind=StackError):
        run("diff", "--catalog", ENCODERS, "--region", "us-east-1")


@pytest.mark.usefixtures("deployed")
def test_missing_cdk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a missing cdk command names the command that installs it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node").write_text("#!/bin/sh\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("cdk-missing", kind=LocalError):
        run("diff", "--catalog", ENCODERS, "--region", "us-east-1")
