"""`cohost expire` with fake services: its requests, changes and output."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fakes.refusals import refused
from fakes.scaling_session import OUTPUTS, Session, fault
from typer.testing import CliRunner

from cohost import cli
from cohost.deploy.expiry import read_when
from cohost.endpoint.stack_outputs import DEFAULT_STACK
from cohost.errors import StackError

if TYPE_CHECKING:
    from click import Result

NOW = dt.datetime(2026, 12, 1, 12, 0, tzinfo=dt.UTC)
FACTS = {
    "action": "copies-to-zero",
    "group": "g",
    "schedules": [["bounds", 0], ["copies", 60], ["notice", 0]],
    "config": "config",
    "component": "lmi-cohost-models",
    "bounds": [0, 2],
}
MULTI_MODEL = {key: value for key, value in OUTPUTS.items() if key != "InferenceComponentName"} | {
    "Topology": "multi-model"
}


class Services(Session):
    """The services of a stack with an expiry; `gone` means that the endpoint was deleted."""

    def __init__(self, end: dt.datetime, outputs: dict[str, str] = OUTPUTS, **facts: Any) -> None:
        super().__init__()
        self.outputs = {**outputs, "EndOfLife": json.dumps({**FACTS, **facts})}
        self.schedules = {
            name: {
                "ScheduleExpression": f"at({end + dt.timedelta(seconds=offset):%Y-%m-%dT%H:%M:%S})",
                "State": "ENABLED",
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "Target": {"Arn": f"arn:{name}", "RoleArn": "arn:role"},
                "ActionAfterCompletion": "NONE",
            }
            for name, offset in FACTS["schedules"]
        }
        self.gone = False
        self.made: list[dict[str, Any]] = []

    def get_schedule(self, *, GroupName: str, Name: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """EventBridge Scheduler."""
        assert GroupName == "g"
        return self.schedules[Name]

    def update_schedule(self, *, GroupName: str, Name: str, **settings: Any) -> None:  # noqa: N803 - boto3's names
        """Update a schedule as Scheduler does: members that are left out are removed."""
        assert GroupName == "g"
        self._check("UpdateSchedule")
        self.schedules[Name] = settings

    def describe_endpoint(self, **name: str) -> dict[str, Any]:
        """SageMaker."""
        if self.gone:
            raise fault("DescribeEndpoint", 'Could not find endpoint "arn".')
        return super().describe_endpoint(**name)

    def create_endpoint(self, **request: Any) -> None:
        """SageMaker: in service at once."""
        self.made.append(request)
        self.gone = False


@pytest.fixture
def later() -> dt.datetime:
    """An end some days ahead of the machine's clock."""
    return (dt.datetime.now(dt.UTC) + dt.timedelta(days=3)).replace(microsecond=0)


def play(monkeypatch: pytest.MonkeyPatch, services: Services) -> Services:
    """Give the command these services."""
    monkeypatch.setattr(boto3, "Session", lambda: services)
    return services


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    return CliRunner().invoke(cli.app, ["expire", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "current", "expected"),
    [
        ("8h", None, "2026-12-01T20:00:00+00:00"),
        ("+4h", "2026-12-02T00:00:00+00:00", "2026-12-02T04:00:00+00:00"),
        ("+4h", "2026-11-01T00:00:00+00:00", "2026-12-01T16:00:00+00:00"),
        ("+4h", None, "2026-12-01T16:00:00+00:00"),
        ("2026-12-31", None, "2027-01-01T00:00:00+00:00"),
        ("2026-12-31T18:00+09:00", None, "2026-12-31T09:00:00+00:00"),
    ],
)
def test_end_that_is_asked_for(text: str, current: str | None, expected: str) -> None:
    """`cohost expire` takes a time from now, a time to add, or a moment; a past expiry is extended from now."""
    found = read_when(text, now=NOW, current=None if current is None else dt.datetime.fromisoformat(current))
    assert found is not None
    assert found.isoformat() == expected


def test_never_is_no_end() -> None:
    """`cohost expire never` disables the schedules."""
    assert read_when("never", now=NOW, current=NOW) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("soon", "expiry-unreadable"),
        ("5m", "expiry-unreadable"),
        ("+2026-12-31", "expiry-unreadable"),
        ("2026-11-30", "expiry-past"),
    ],
)
def test_end_that_cannot_be_is_refused(text: str, code: str) -> None:
    """An impossible expiry is rejected with the allowed values, and changes no schedule."""
    with refused(code, "WHEN", kind=StackError):
        read_when(text, now=NOW, current=None)


def test_move_keeps_what_a_schedule_is(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """A moved schedule keeps target, window, description and its delay after the expiry."""
    services = play(monkeypatch, Services(later))
    before = dict(services.schedules["copies"])
    answer = json.loads(run("+1d", "--json").stdout)
    end = later + dt.timedelta(days=1)
    assert dt.datetime.fromisoformat(answer["at"]) == end
    copies = services.schedules["copies"]
    assert copies["ScheduleExpression"] == f"at({end + dt.timedelta(minutes=1):%Y-%m-%dT%H:%M:%S})"
    assert (copies["Target"], copies["FlexibleTimeWindow"]) == (before["Target"], before["FlexibleTimeWindow"])
    assert services.changes == []


def test_never_switches_every_schedule_off_and_back(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """`cohost expire never` disables the schedules of the stack until a new expiry is set."""
    services = play(monkeypatch, Services(later))
    assert "keeps running and bills until it is removed" in run("never").stdout
    assert {one["State"] for one in services.schedules.values()} == {"DISABLED"}
    assert {one["ScheduleExpression"][:8] for one in services.schedules.values()} == {"at(2099-"}
    assert json.loads(run("--json").stdout)["at"] is None
    run("8h")
    assert {one["State"] for one in services.schedules.values()} == {"ENABLED"}


def test_copies_that_were_taken_come_back_with_the_next_call(
    monkeypatch: pytest.MonkeyPatch, later: dt.datetime
) -> None:
    """An expired scale-to-zero endpoint gets its bounds and scaling again, and a copy at the next call."""
    services = play(monkeypatch, Services(later - dt.timedelta(days=9)))
    services.minimum, services.maximum, services.suspended = 0, 0, True
    assert "has ended (AtZero)" in run().stdout
    run("8h")
    assert services.changes == ["bounds 0-2"]
    assert json.loads(run("--json").stdout)["state"] == "InService"


def test_endpoint_that_was_deleted_is_made_again(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """`cohost expire` creates a deleted endpoint again with its name and configuration, and reports lost scaling."""
    ended = later - dt.timedelta(days=9)
    services = play(monkeypatch, Services(ended, MULTI_MODEL, action="delete-endpoint", config="the-config"))
    services.gone = True
    assert "has ended (Gone)" in run().stdout
    result = run("8h")
    (made,) = services.made
    assert (made["EndpointName"], made["EndpointConfigName"]) == ("lmi-cohost", "the-config")
    assert {"Key": "lmi-cohost:stack", "Value": DEFAULT_STACK} in made["Tags"]
    assert "scaling ended with it" in result.stderr
    assert "is deleted at" in run().stdout


def test_endpoint_that_is_there_is_left_alone(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """Moving the expiry of an existing endpoint changes only the schedules."""
    services = play(monkeypatch, Services(later, MULTI_MODEL, action="delete-endpoint"))
    run("+4h")
    assert services.made == []


def test_stack_without_an_end_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """The error for a stack without an expiry has the line for the catalog."""
    services = play(monkeypatch, Services(later))
    del services.outputs["EndOfLife"]
    with refused("expiry-missing", kind=StackError):
        run()


def test_refusal_of_the_service_is_told(monkeypatch: pytest.MonkeyPatch, later: dt.datetime) -> None:
    """The error of a failed change has the schedule's name and the service's reason."""
    services = play(monkeypatch, Services(later))
    services.refused["UpdateSchedule"] = "no right to pass the role"
    with refused("schedule-refused", "schedule bounds", kind=StackError) as caught:
        run("8h")
    assert "no right to pass the role" in caught.value.problem
