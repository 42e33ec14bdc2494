"""The commands of a scale-to-zero endpoint: output, rejections and exit codes."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fakes.refusals import refused
from fakes.scaling_session import Session, fault
from typer.testing import CliRunner

from cohost import cli
from cohost.commands.options import parse_seconds
from cohost.errors import NoCapacityError, RoutingError, StackError
from cohost.waiting import Backoff

if TYPE_CHECKING:
    from pathlib import Path

    from click import Result

NO_CAPACITY = "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """The stack that the commands see; nothing reaches a network, and pauses are short."""
    playing = Session()
    monkeypatch.setattr(boto3, "Session", lambda: playing)
    for module in ("copies", "working_hours"):
        monkeypatch.setattr(f"cohost.endpoint.{module}.PAUSES", Backoff(first_s=0.001, longest_s=0.001))
    return playing


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def text(result: Result) -> str:
    """Return the printed text on one line."""
    return " ".join(re.sub(r"[│┃━─┏┓┡┩└┘┴┬]", " ", result.stdout).split())


def test_sleep_says_what_wakes_it_and_that_no_instance_bills(session: Session) -> None:
    """`cohost sleep` prints what wakes the endpoint, and that no instance bills."""
    result = run("sleep")

    assert "lmi-cohost goes to sleep: copies 1 to 0." in text(result)
    assert "The next call wakes it" in text(result)
    assert "Then only the stored archives and logs bill" in text(result)
    assert session.desired == 0


def test_sleep_says_what_still_bills(session: Session) -> None:
    """`cohost sleep` prints the price of instances that stay, with the key that removes them."""
    session.minimum = session.deployed_minimum = 1
    session.managed = {"Status": "ENABLED", "MinInstanceCount": 1}

    printed = text(run("sleep", "--until-wake"))

    assert "Auto scaling kept at least 1" in printed
    assert "Neither a call nor the schedule wakes it" in printed
    assert "1 x ml.g5.xlarge still bill at 1.408 USD an hour" in printed
    assert "fix: set scaling.min: 0" in printed


def test_instances_without_managed_scaling_stay(session: Session) -> None:
    """An endpoint without managed scaling keeps the number of instances with which it was created."""
    session.managed, session.minimum = None, None

    printed = text(run("sleep"))

    assert "Nothing scales it: only `cohost wake`" in printed
    assert "1 x ml.g5.xlarge still bill" in printed


@pytest.mark.usefixtures("session")
def test_sleep_as_json_is_data() -> None:
    """`cohost sleep --json` prints the changes."""
    data = json.loads(run("sleep", "--json").stdout)

    assert (data["copies_before"], data["copies"], data["instances_that_stay"]) == (1, 0, 0)
    assert data["bounds"] == {"minimum": 0, "maximum": 2, "suspended": False}


def test_wake_waits_until_a_model_answers(session: Session) -> None:
    """`cohost wake` ends when a call succeeds, and prints the wait on stderr."""
    session.desired = session.current = 0

    result = run("wake")

    assert "lmi-cohost is awake: 1 of 1 copies run." in text(result)
    assert "It scales in to zero without calls" in text(result)
    assert re.search(r"Waking lmi-cohost: 0:0\d of at most 15:00", result.stderr)
    assert [call["copies"] for call in session.calls] == [1]


def test_wake_keeps_a_number_of_copies(session: Session) -> None:
    """`cohost wake --copies` keeps this number of copies, and --json prints the result for scripts."""
    data = json.loads(run("wake", "--copies", "2", "--json").stdout)

    assert (data["copies"], data["bounds"]["minimum"], data["running"]) == (2, 2, 2)
    assert "At least 2 stay until `cohost sleep`." in text(run("wake", "--copies", "2"))
    assert session.desired == 2


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a bucket with one archive of all models."""
    archives = SimpleNamespace(models=lambda _: {"models": "bundle-0123456789abcdef"})
    monkeypatch.setattr("cohost.endpoint.status.ModelStore", lambda *_: archives)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "1 run, 1 desired scaling 0 to 2 copies generation"),
        ({"desired": 0, "current": 0}, "0 run, 0 desired scaling 0 to 2 copies asleep the next call wakes it"),
        ({"desired": 0, "current": 0, "suspended": True}, "asleep until `cohost wake`: neither a call nor the"),
        ({"desired": 0, "current": 0, "minimum": None}, "scaling none asleep nothing scales it: only `cohost wake`"),
        ({"desired": 1, "current": 0, "starts_after": 9}, "0 run, 1 desired scaling 0 to 2 copies waking calls fail"),
        ({"current": 0, "status": "Failed"}, "lmi-cohost-models: Failed (no machine was to be had)"),
    ],
)
def test_status_tells_what_a_call_would_meet(session: Session, state: dict[str, Any], words: str) -> None:
    """`cohost status` shows copies, bounds, the digest of the archive, and at zero the way to wake."""
    vars(session).update(state)

    printed = text(run("status"))

    assert words in printed
    assert "models 0123456789ab deploy" in printed
    assert "models loaded now" not in printed


@pytest.mark.usefixtures("store")
def test_status_as_json_has_the_component(session: Session) -> None:
    """A script reads copies and bounds; a multi-model endpoint has no component."""
    data = json.loads(run("status", "--json").stdout)

    assert (data["topology"], data["instance_count"], data["not_in_outputs"]) == ("scale-to-zero", 1, [])
    assert data["component"] == {
        "name": "lmi-cohost-models",
        "status": "InService",
        "desired_copies": 1,
        "current_copies": 1,
        "failure_reason": None,
        "bounds": {"minimum": 0, "maximum": 2, "suspended": False},
    }
    session.outputs |= {"Topology": "multi-model"}
    del session.outputs["InferenceComponentName"]
    data = json.loads(run("status", "--json").stdout)
    assert (data["component"], data["loaded_models"]) == (None, 2)


@pytest.mark.parametrize("command", ["wake", "sleep"])
def test_multi_model_endpoints_are_refused(session: Session, command: str) -> None:
    """`cohost wake` and `cohost sleep` reject a multi-model endpoint with the reason and a fix."""
    session.outputs |= {"Topology": "multi-model"}
    del session.outputs["InferenceComponentName"]

    with refused("topology-unfit", f"cohost {command}", kind=RoutingError):
        run(command)


def test_push_is_refused_before_anything_is_sent(session: Session) -> None:
    """`cohost push` is rejected for a component before any request, because only a deploy adds a model."""
    with refused("topology-unfit", "cohost push", kind=RoutingError):
        run("push", "minilm", "--stack", "S", "--catalog", "model_configs/offline.yaml")
    assert session.changes == []


def test_push_of_a_shared_model_reads_the_version_of_the_running_engine_process(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another version would need a second engine process, so nothing is written."""
    session.outputs |= {"Topology": "multi-model"}
    del session.outputs["InferenceComponentName"]
    store = {"Type": "Custom::LmiModelStore", "Properties": {"Handlers": {"old": "shared@0123456789ab"}}}
    monkeypatch.setattr(session, "get_template", lambda **_: {"TemplateBody": {"Resources": {"Store": store}}})
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        "endpoint: {name: e, instance_type: ml.g5.xlarge, image: 'djl-inference:0.36.0-lmi26.0.0-cu130'}\n"
        "models:\n  nli: {model_id: org/nli, task: text-classification, handler: shared}\n"
    )
    with refused("handler-version-differs", "models.nli.handler", kind=StackError):
        run("push", "nli", "--stack", "S", "--catalog", str(catalog))
    assert session.changes == []


def test_invoke_at_zero_fails_with_a_fault_of_its_own(session: Session) -> None:
    """`cohost invoke` without --wake fails at once if no copy runs."""
    session.answers = [fault("InvokeEndpoint", NO_CAPACITY, code="ValidationError")]

    with refused("no-capacity", kind=NoCapacityError):
        run("invoke", "--model", "nli", "a")


def test_invoke_with_wake_waits_and_answers(session: Session) -> None:
    """`cohost invoke --wake` prints only the answer on stdout."""
    session.desired, session.current = 1, 0
    session.answers = [fault("InvokeEndpoint", NO_CAPACITY, code="ValidationError")]

    result = run("invoke", "--model", "nli", "a", "--wake", "--wake-timeout", "10m", "--json")

    assert json.loads(result.stdout) == [{"label": "a", "score": 1.0}]
    assert re.search(r"Waking lmi-cohost: 0:00 of at most 10:00", result.stderr)


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), (900.0, 900), ("0", 0)]
)
def test_durations(given: Any, seconds: float) -> None:
    """A duration is a number with or without a unit."""
    assert parse_seconds(given) == seconds


@pytest.mark.parametrize("given", ["", "m", "15 m", "-1", "1d", "1e3", "٣m"])
def test_wrong_durations_are_wrong_usage(given: str) -> None:
    """A wrong duration ends with exit code 2 and a message that names the allowed form."""
    result = CliRunner().invoke(cli.app, ["wake", "--timeout", given])

    assert result.exit_code == 2
    assert "allowed: a number with" in " ".join(result.stderr.replace("│", " ").split())
