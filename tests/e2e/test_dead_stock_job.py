"""A stock model whose process ends, as seen by callers, `cohost status` and the stack's alarm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from emulation import emulation
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.endpoint.client import CohostClient
from cohost.errors import WorkerStoppedError
from local_aws.testing import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.deploy.local_aws import LocalServer

pytestmark = [pytest.mark.e2e, pytest.mark.steps, pytest.mark.timeout(300)]

CATALOG = Path(__file__).parents[2] / "model_configs" / "offline.yaml"
DEAD, TEXT = "mdeberta", "The train to Busan leaves at nine."
FAST = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Start an emulator with the offline catalog deployed, all models loaded, and the process of one killed."""
    with emulation(tmp_path_factory.mktemp("dead"), CATALOG) as own:
        own.cdk.bootstrap()
        own.cdk.deploy(CATALOG)
        client = CohostClient.from_stack(session=boto3.Session())
        for model in client.deployment.models:
            client.invoke(model, TEXT)
        fault = {"endpoint": client.deployment.endpoint_name, "model": DEAD, "fault": "die"}
        own.server.ask("/_cohost/faults", {"worker_fault": fault})
        yield own.server


def call(model: str) -> bool:
    """Return True if a model answers, without waiting for it."""
    try:
        CohostClient.from_stack(session=boto3.Session()).invoke(model, TEXT, restart_timeout_s=0)
    except WorkerStoppedError:
        return False
    return True


@pytest.mark.usefixtures("server")
def test_callers_hear_what_it_is_and_what_to_do() -> None:
    """Callers of a dead stock model get an error with the fix; other models answer."""
    wait_for(lambda: not call(DEAD), limit_s=30)

    with refused("worker-stopped", kind=WorkerStoppedError):
        CohostClient.from_stack(session=boto3.Session()).invoke(DEAD, TEXT)
    assert call("minilm")
    assert call("xlmr-large")


@pytest.mark.usefixtures("server")
def test_status_names_it_when_asked_to_probe() -> None:
    """`cohost status --probe` names the dead model, although SageMaker reports the endpoint as InService."""
    result = CliRunner().invoke(cli.app, ["status", "--probe"], catch_exceptions=False)

    assert result.exit_code == 1
    assert "lmi-cohost: InService" in result.stdout
    told = {name: line for line in result.stdout.splitlines() for name in (DEAD, "minilm") if f" {name} " in line}
    assert "process stopped" in told[DEAD]
    assert "answers" in told["minilm"]


def test_the_stack_s_own_alarm_goes_off(server: LocalServer) -> None:
    """The stack's alarm for 4xx fires while a third of the calls fails."""
    server.ask("/_cohost/clock", {"speed": FAST})
    cloudwatch = boto3.client("cloudwatch")

    def told() -> bool:
        for model in (DEAD, "minilm", "xlmr-large"):
            call(model)
        alarms = cloudwatch.describe_alarms(StateValue="ALARM")["MetricAlarms"]
        return any("(monitoring.alarms.client_errors_percent)" in alarm["AlarmDescription"] for alarm in alarms)

    wait_for(told, limit_s=120)
