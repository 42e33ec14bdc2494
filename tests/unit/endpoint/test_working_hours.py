"""Waking and putting to sleep: the changes, their order, and their reversal."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused
from fakes.scaling_session import COMPONENT, Session, fault

from cohost.endpoint.client import CohostClient
from cohost.endpoint.copies import Bounds
from cohost.endpoint.working_hours import Patience, put_to_sleep, wait_until_awake, wake_up
from cohost.errors import InvocationError, NoCapacityError, RoutingError, StackError, UnderWayError, WorkerStoppedError
from cohost.waiting import Clock

if TYPE_CHECKING:
    from cohost.endpoint.copies import Copies

MULTI_MODEL = dataclasses.replace(COMPONENT, topology="multi-model", inference_component_name=None)


def patience(pauses: list[float] | None = None, limit_s: float = 900) -> Patience:
    """Return a patience that does not really wait, and records the length of each pause."""
    kept = [] if pauses is None else pauses
    clock = Clock(now=lambda: sum(kept), sleep=kept.append, jitter=lambda: 0.0)
    return Patience(limit_s=limit_s, notice=lambda _: None, clock=clock)


def wait(session: Session, limit_s: float = 900) -> tuple[Copies, list[float]]:
    """Wait until the endpoint answers; the copies then, and the pauses."""
    pauses: list[float] = []
    waits = patience(pauses, limit_s)
    client = CohostClient(COMPONENT, runtime=session, s3=session, sagemaker=session, clock=waits.clock)
    return wait_until_awake(COMPONENT, session, waits, client), pauses


def test_sleep_asks_for_no_copies() -> None:
    """If the deploy allows zero copies, `cohost sleep` only sets their number to 0, and a call wakes the endpoint."""
    session = Session()

    change = put_to_sleep(COMPONENT, session, patience(), until_wake=False)

    assert session.changes == ["copies 0"]
    assert (change.copies_before, change.copies, change.bounds) == (1, 0, Bounds(minimum=0, maximum=2))
    assert change.instances_that_stay == 0


def test_sleep_lowers_a_minimum_first() -> None:
    """`cohost sleep` lowers the minimum before the copies, or auto scaling would add one."""
    session = Session(desired=2, minimum=1, deployed_minimum=1)

    change = put_to_sleep(COMPONENT, session, patience(), until_wake=False)

    assert session.changes == ["bounds 0-2", "copies 0"]
    assert change.bounds_before == Bounds(minimum=1, maximum=2)
    assert (change.instances_that_stay, change.instance_type) == (1, "ml.g5.xlarge")


def test_sleep_until_wake_keeps_calls_from_waking_it() -> None:
    """After `cohost sleep --until-wake` neither calls nor the schedule add copies."""
    session = Session()

    put_to_sleep(COMPONENT, session, patience(), until_wake=True)

    assert session.changes == ["bounds 0-2 suspended", "copies 0"]


def test_sleep_without_auto_scaling_changes_the_copies_alone() -> None:
    """`cohost sleep` of a stack without a scalable target changes only the copies."""
    session = Session(minimum=None)

    assert put_to_sleep(COMPONENT, session, patience(), until_wake=True).bounds is None
    assert session.changes == ["copies 0"]


def test_sleep_of_what_sleeps_changes_nothing() -> None:
    """`cohost sleep` of a sleeping endpoint changes nothing."""
    session = Session(desired=0)

    put_to_sleep(COMPONENT, session, patience(), until_wake=False)

    assert session.changes == []


def test_a_refused_change_leaves_the_bounds_as_they_were() -> None:
    """If the number of copies cannot be set, the minimum is restored."""
    session = Session(minimum=1, deployed_minimum=1)
    session.refused["UpdateInferenceComponentRuntimeConfig"] = "Cannot update in-progress component"

    with refused("component-refused", kind=StackError):
        put_to_sleep(COMPONENT, session, patience(), until_wake=True)

    assert session.changes == ["bounds 0-2 suspended", "bounds 1-2"]


def test_a_change_under_way_is_waited_for() -> None:
    """A change of the copies in progress is waited for up to the limit."""
    session, pauses = Session(minimum=1, deployed_minimum=1), list[float]()
    session.status, session.busy_for = "Updating", 2

    put_to_sleep(COMPONENT, session, patience(pauses), until_wake=False)

    assert (session.changes, pauses) == (["bounds 0-2", "copies 0"], [2, 4])
    session.status, session.busy_for = "Updating", 100
    session.changes.clear()
    with refused("component-under-way", kind=UnderWayError):
        wake_up(COMPONENT, session, patience(limit_s=60), copies=2)
    assert session.changes == ["bounds 2-2", "bounds 0-2"], "the bounds are as before"


def test_ctrl_c_while_waiting_leaves_the_bounds_as_they_were() -> None:
    """Ctrl-C during the wait of `cohost sleep` leaves the bounds unchanged."""
    session = Session(minimum=1, deployed_minimum=1)
    session.status, session.busy_for = "Updating", 100

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    waits = Patience(limit_s=60, notice=lambda _: None, clock=Clock(sleep=interrupted))
    with pytest.raises(KeyboardInterrupt):
        put_to_sleep(COMPONENT, session, waits, until_wake=False)
    assert (session.minimum, session.desired) == (1, 1)


@pytest.mark.parametrize("deployed", [0, 1])
def test_wake_undoes_sleep(deployed: int) -> None:
    """`cohost wake` restores bounds and scaling as deployed, and requests at least one copy."""
    session = Session(minimum=deployed, deployed_minimum=deployed)
    put_to_sleep(COMPONENT, session, patience(), until_wake=True)
    session.changes.clear()

    wake_up(COMPONENT, session, patience(), copies=None)

    assert session.changes == [f"bounds {deployed}-2", "copies 1"]


def test_wake_keeps_copies_when_a_number_is_given() -> None:
    """After `cohost wake --copies` auto scaling keeps this number of copies until `cohost sleep`."""
    session = Session(desired=0)

    change = wake_up(COMPONENT, session, patience(), copies=2)

    assert session.changes == ["bounds 2-2", "copies 2"]
    assert change.bounds == Bounds(minimum=2, maximum=2)
    put_to_sleep(COMPONENT, session, patience(), until_wake=False)
    assert (session.minimum, session.desired) == (0, 0)


def test_wake_of_what_is_awake_changes_nothing() -> None:
    """Waking an awake endpoint keeps added copies and the minimum of the schedule."""
    session = Session(desired=2, minimum=1)

    assert wake_up(COMPONENT, session, patience(), copies=None).copies == 2
    assert session.changes == []


def test_wake_restores_what_the_schedule_narrowed() -> None:
    """`cohost wake` allows copies up to the deployed maximum outside of working hours."""
    session = Session(desired=0, maximum=3)
    session.maximum = 1

    wake_up(COMPONENT, session, patience(), copies=3)

    assert session.changes == ["bounds 3-3", "copies 3"]


@pytest.mark.parametrize(("copies", "bounds"), [(None, "0-2"), (1, "1-2")])
def test_wake_after_the_end_of_life_brings_the_maximum_back(copies: int | None, bounds: str) -> None:
    """`cohost wake` after an expiry restores the maximum, which the expiry had set to 0."""
    session = Session(desired=0)
    session.maximum = 0

    wake_up(COMPONENT, session, patience(), copies=copies)

    assert session.changes == [f"bounds {bounds}", "copies 1"]


def test_wake_past_the_maximum_is_refused() -> None:
    """More copies than the maximum are rejected with the limit and its key, without a change."""
    session = Session(desired=0)

    with refused("copies-beyond-maximum", "--copies", kind=StackError) as caught:
        wake_up(COMPONENT, session, patience(), copies=3)
    assert caught.value.allowed == "1 to 2"
    assert "scaling.max" in caught.value.fix
    assert session.changes == []


def test_wake_without_auto_scaling_sets_the_copies() -> None:
    """`cohost wake` of a stack without a scalable target sets only the copies."""
    session = Session(desired=0, minimum=None)

    assert wake_up(COMPONENT, session, patience(), copies=3).copies == 3


def test_a_template_that_may_not_be_read_is_told() -> None:
    """The error for a template that may not be read names the missing right."""
    session = Session(desired=0)
    session.refused["GetTemplate"] = "no"

    with refused("template-unreadable", kind=StackError) as caught:
        wake_up(COMPONENT, session, patience(), copies=None)
    assert "cloudformation:GetTemplate" in caught.value.fix
    assert session.changes == []


def test_a_multi_model_endpoint_is_told_the_way_out() -> None:
    """Waking and sleeping a multi-model endpoint are rejected with the reason before any request."""
    session = Session()
    with refused("topology-unfit", "cohost wake", kind=RoutingError):
        wake_up(MULTI_MODEL, session, patience(), copies=None)
    with refused("topology-unfit", "cohost sleep", kind=RoutingError):
        put_to_sleep(MULTI_MODEL, session, patience(), until_wake=False)
    assert session.changes == []


def test_nothing_is_called_before_a_copy_runs() -> None:
    """No model is called before a copy runs, because a rejected call would start a further copy."""
    session = Session(desired=0)
    wake_up(COMPONENT, session, patience(), copies=None)
    session.starts_after = 4

    found, pauses = wait(session)

    assert (found.current, found.desired, pauses) == (1, 1, [2, 4, 8])
    assert [(call["copies"], call["CustomAttributes"]) for call in session.calls] == [(1, "model_name=nli")]


@pytest.mark.parametrize("status", [400, 422])
def test_a_model_that_wants_more_than_a_text_is_awake(status: int) -> None:
    """A zero-shot model that rejects a call without labels counts as awake."""
    session = Session()
    session.answers = [fault("InvokeEndpoint", "labels?", code="ModelError", status=424, OriginalStatusCode=status)]

    assert wait(session)[0].current == 1


def test_a_sentence_is_an_answer_of_a_model_that_is_awake() -> None:
    """An answer 200 with a sentence of the stock handler counts as awake."""
    session = Session()
    session.answers = [b'"Input Parsing failed."']

    assert wait(session)[0].current == 1


@pytest.mark.parametrize(("code", "status"), [("ModelError", 503), ("AccessDeniedException", 403)])
def test_a_model_that_does_not_answer_is_told(code: str, status: int) -> None:
    """`cohost wake` fails if a copy runs but no model answers."""
    session = Session()
    session.answers = [fault("InvokeEndpoint", "broken", code=code, status=status, OriginalStatusCode=status)]

    with refused("endpoint-answer", kind=InvocationError):
        wait(session)


def test_a_model_whose_process_has_ended_is_not_awake() -> None:
    """The server's 400 for a stopped process does not count as awake."""
    text = '{"code": 400, "message": "Backend Python process is stopped."}'
    stopped = {"code": "ModelError", "status": 424, "OriginalStatusCode": 400, "OriginalMessage": text}
    session = Session()
    session.answers = [fault("InvokeEndpoint", text, **stopped) for _ in range(20)]

    with refused("worker-stopped", kind=WorkerStoppedError):
        wait(session)


def test_waiting_to_be_awake_has_a_limit() -> None:
    """The error at the limit has the number of requested copies and the fix."""
    session = Session(desired=1)
    session.current, session.starts_after = 0, 1000

    with refused("no-capacity", kind=NoCapacityError):
        wait(session, limit_s=60)
    assert session.calls == []


def test_a_component_that_fails_while_waking_ends_the_wait() -> None:
    """A component that fails while waking ends the wait at once with SageMaker's reason."""
    session = Session(desired=1)
    session.current, session.status = 0, "Failed"

    with refused("component-failed", kind=StackError) as caught:
        wait(session)
    assert "no machine was to be had" in caught.value.problem
