"""The probe of `cohost status --probe`: one small call per model shows the models that answer."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fakes.scaling_session import COMPONENT, Session, fault
from typer.testing import CliRunner

from cohost import cli
from cohost.endpoint.client import CohostClient
from cohost.endpoint.probing import Probe, Verdict, probe_models

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from click import Result

STOPPED = '{"code": 400, "type": "TranslateException", "message": "Backend Python process is stopped."}'
ANSWER = b'[{"label": "a", "score": 1.0}]'


def says(text: str, status: int, code: str = "ModelError") -> ClientError:
    """Return the service's error for an answer of a model's container."""
    more = {"OriginalStatusCode": status, "OriginalMessage": text} if code == "ModelError" else {}
    return fault("InvokeEndpoint", text, code=code, status=424 if more else status, **more)


def stopped() -> ClientError:
    """The answer for a model whose process has ended."""
    return says(STOPPED, 400)


def probed(*answers: Exception | bytes, **fields: Any) -> tuple[Probe, Session]:
    """Probe one model with these answers, and return the probe and the calls."""
    session = Session()
    session.answers = list(answers)
    deployment = dataclasses.replace(COMPONENT, models={"nli": "nli"}, **fields)
    client = CohostClient(deployment, runtime=session, s3=session)
    (probe,) = probe_models(client, ["nli"])
    return probe, session


@pytest.mark.parametrize(
    ("answers", "verdict", "detail"),
    [
        ([ANSWER, ANSWER], Verdict.OK, None),
        ([ANSWER, stopped()], Verdict.PARTLY_STOPPED, "1 of 2 calls met a worker process that has ended"),
        ([stopped(), stopped(), stopped()], Verdict.STOPPED, "Backend Python process is stopped"),
        ([stopped(), ANSWER, stopped()], Verdict.PARTLY_STOPPED, "2 of 3 calls met"),
        ([stopped(), says("no labels", 424), ANSWER], Verdict.PARTLY_STOPPED, "1 of 3 calls met"),
        ([says("loading", 429, "ModelNotReadyException")], Verdict.NOT_READY, "loading"),
        ([says("candidate_labels is missing", 424)], Verdict.REFUSES, "candidate_labels is missing"),
        ([b'"Input Parsing failed."'], Verdict.REFUSES, "a sentence instead of results"),
        ([says("Model is not ready", 503)], Verdict.FAILS, "Model is not ready"),
        ([says("may not call", 403, "AccessDeniedException")], Verdict.FAILS, "may not call"),
    ],
)
def test_each_answer_has_a_verdict(answers: list[Any], verdict: Verdict, detail: str | None) -> None:
    """Each answer has a verdict: only the server's text of a stopped process means a dead model."""
    probe, session = probed(*answers)

    assert (probe.verdict, len(session.calls)) == (verdict, len(answers))
    assert probe.milliseconds >= 0
    assert (detail or "") in (probe.detail or "")


def test_batched_model_that_is_restarted_is_not_dead() -> None:
    """A stopped process of a batched model is reported as restarting, because the server restarts it."""
    probe, session = probed(stopped(), handlers={"nli": "batched"})

    assert (probe.verdict, probe.well, len(session.calls)) == (Verdict.RESTARTING, False, 1)


@pytest.mark.parametrize(
    ("task", "parameters"),
    [
        ("text-classification", None),
        ("feature-extraction", None),
        (None, None),
        ("zero-shot-classification", {"candidate_labels": ["shipping", "billing"]}),
    ],
)
def test_probe_is_a_valid_input_of_the_task(task: str | None, parameters: dict[str, Any] | None) -> None:
    """The probe sends a valid input for the model's task, which the outputs name."""
    answer = b'{"sequence": "x", "labels": ["a"], "scores": [1.0]}' if parameters else ANSWER
    _, session = probed(answer, tasks={} if task is None else {"nli": task})

    assert json.loads(session.calls[0]["Body"]).get("parameters") == parameters


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """The stack that the command sees."""
    playing = Session()
    monkeypatch.setattr(boto3, "Session", lambda: playing)
    archives = SimpleNamespace(models=lambda _: {"models": "bundle-0123"})
    monkeypatch.setattr("cohost.endpoint.status.ModelStore", lambda *_: archives)
    return playing


def run(*arguments: str) -> Result:
    """Run the command in this process; an unexpected exception fails the test."""
    return CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def test_status_names_the_model_that_is_dead(session: Session) -> None:
    """`cohost status --probe` names the dead model, and ends with exit code 1."""
    session.answers = [ANSWER, ANSWER, stopped(), stopped(), stopped()]

    result = run("status", "--probe")

    assert result.exit_code == 1
    (nli, mini) = (line for line in result.stdout.splitlines() if " nli " in line or " mini " in line)
    assert "answers" in nli
    assert "process stopped" in mini


def test_status_as_json_has_the_probes(session: Session) -> None:
    """The JSON has name, verdict and milliseconds of each probe, with exit code 0 if all answer."""
    result = run("status", "--probe", "--json")

    assert result.exit_code == 0
    probes = json.loads(result.stdout)["probes"]
    assert [(one["model"], one["verdict"], one["detail"]) for one in probes] == [
        ("nli", "answers", None),
        ("mini", "answers", None),
    ]
    assert len(session.calls) == 4


def test_status_without_probe_calls_nothing_and_says_so(session: Session) -> None:
    """`cohost status` without --probe makes no call, because a call may load a model or wake an endpoint."""
    result = run("status")

    assert (result.exit_code, session.calls) == (0, [])
    assert "The models were not called; `cohost status --probe`" in result.stdout


def test_probe_does_not_wake_an_endpoint_at_zero(session: Session) -> None:
    """A probe does not call an endpoint at zero copies."""
    session.desired = session.current = 0

    result = run("status", "--probe")

    assert (result.exit_code, session.calls) == (0, [])
    assert "No model was called: no copy runs" in result.stdout
