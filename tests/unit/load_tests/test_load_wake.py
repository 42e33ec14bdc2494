"""The behaviour of a load test at an endpoint without copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from fakes.scaling_session import Session as Stack

from cohost.report.run import Model, Target
from cohost.report.samples import Outcome
from cohost.waiting import Backoff
from load_tests.phases import first_calls, wake_up
from load_tests.recorder import Verdict
from load_tests.result import price_of
from load_tests.targets import Resolved
from load_tests.transport import Exchange

ZERO = Verdict(Outcome.NO_CAPACITY, 400, "Inference Component has no capacity")
OK = Verdict(Outcome.OK, 200)


@dataclass
class Session:
    """A process of a load test whose calls have the given outcomes; the last one repeats."""

    verdicts: list[Verdict]
    component: str | None = "lmi-cohost-models"
    calls: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set one model with one payload."""
        self.books = [SimpleNamespace(payloads={1: ["payload"]})]
        target = Target(
            kind="sagemaker",
            url="https://x",
            endpoint_name="lmi-cohost",
            region="us-east-1",
            inference_component_name=self.component,
            instance_type="ml.g5.xlarge",
            instance_count=0,
        )
        self.resolved = Resolved(
            target=target,
            models=(Model(name="nli", task="text-classification"),),
            destinations=(),
            revisions=(None,),
            credentials=None,
        )

    def call(self, phase: int, model: int, payload: Any) -> tuple[Exchange, Verdict]:
        """Make one call."""
        assert payload == "payload"
        self.calls.append((phase, model))
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        return Exchange(sent=1.0, done=2.0), verdict


@pytest.fixture(autouse=True)
def stack(monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Return SageMaker's descriptions of an endpoint that wakes up, with short pauses."""
    playing = Stack(desired=1)
    playing.current = 0
    monkeypatch.setattr(boto3, "client", playing.client)
    monkeypatch.setattr("cohost.endpoint.copies.PAUSES", Backoff(first_s=0.001, longest_s=0.001))
    return playing


def test_waking_refuses_one_call_and_counts_the_instances_anew() -> None:
    """Waking rejects one call, and the price is that of the instances after it."""
    session: Any = Session([ZERO, OK])
    assert price_of(session.resolved.target, None) is None, "no instance is no price, rather than a price of 0"

    assert wake_up(session, 3, 1, 60)

    assert session.calls == [(3, 0), (3, 0)]
    assert session.resolved.target.instance_count == 1
    assert price_of(session.resolved.target, None) is not None


def test_what_does_not_wake_up_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A component that does not wake up ends the load test with SageMaker's reason."""
    session: Any = Session([ZERO])

    assert not wake_up(session, 0, 1, 0)
    assert "the target did not wake up: lmi-cohost-models: Inference Component has no capacity" in caplog.text


def test_another_fault_ends_the_wait() -> None:
    """The wait for a copy ends at any error that is not about capacity."""
    session: Any = Session([Verdict(Outcome.REFUSED, 403, "no")])

    assert wake_up(session, 0, 1, 60)
    assert len(session.calls) == 1


def test_a_target_without_component_is_not_called() -> None:
    """--wake has no effect on a multi-model endpoint."""
    session: Any = Session([ZERO], component=None)

    assert wake_up(session, 0, 1, 60)
    assert session.calls == []


def test_first_calls_do_not_wait_for_capacity() -> None:
    """A load test at zero copies without --wake ends at once, with the kind of failure."""
    session: Any = Session([ZERO])

    (cold,) = first_calls(session, 0, 1)

    assert (cold.failure, cold.refused) == ("no capacity: Inference Component has no capacity", 0)
    assert len(session.calls) == 1
