"""The custom resource that turns a length of time into a moment, once."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from cohost.archives import end_of_life

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import CloudFormation

    Send = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.process

EIGHT_HOURS = {"Expires": "8h", "Minutes": "480"}


@pytest.fixture
def send(cloudformation: CloudFormation) -> Send:
    """Send an event to the handler, and return its only answer."""

    def run(kind: str, **fields: Any) -> dict[str, Any]:
        cloudformation.answers.clear()
        end_of_life.on_event(cloudformation.event(kind, **fields), object())
        (answer,) = cloudformation.answers
        return answer

    return run


def moment(answer: dict[str, Any]) -> dt.datetime:
    """The attribute `At`."""
    return dt.datetime.fromisoformat(answer["Data"]["At"]).replace(tzinfo=dt.UTC)


def test_creation_counts_from_now(send: Send) -> None:
    """A duration counts from the call, in UTC and whole seconds; the second attribute is a minute later."""
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    answer = send("Create", ResourceProperties=EIGHT_HOURS)
    after = dt.datetime.now(dt.UTC)
    assert answer["Status"] == "SUCCESS"
    assert before + dt.timedelta(hours=8) <= moment(answer) <= after + dt.timedelta(hours=8)
    then = dt.datetime.fromisoformat(answer["Data"]["ThenAt"]).replace(tzinfo=dt.UTC)
    assert then - moment(answer) == dt.timedelta(minutes=1)
    assert answer["PhysicalResourceId"] == f"ends-{answer['Data']['At']}"


def test_update_of_the_same_length_keeps_the_moment(send: Send) -> None:
    """An update with the same duration keeps the moment."""
    answer = send(
        "Update",
        PhysicalResourceId="ends-2026-12-01T20:00:00",
        ResourceProperties={**EIGHT_HOURS, "ServiceToken": "another"},
        OldResourceProperties=EIGHT_HOURS,
    )
    assert answer["PhysicalResourceId"] == "ends-2026-12-01T20:00:00"
    assert answer["Data"] == {"At": "2026-12-01T20:00:00", "ThenAt": "2026-12-01T20:01:00"}


def test_another_length_counts_anew(send: Send) -> None:
    """A changed duration is counted from the time of the deploy that changed it."""
    answer = send(
        "Update",
        PhysicalResourceId="ends-2020-01-01T00:00:00",
        ResourceProperties={"Expires": "12h", "Minutes": "720"},
        OldResourceProperties=EIGHT_HOURS,
    )
    assert moment(answer) > dt.datetime.now(dt.UTC) + dt.timedelta(hours=11)


def test_deletion_has_nothing_to_do(send: Send) -> None:
    """A Delete event is answered with success under the same physical id."""
    answer = send("Delete", PhysicalResourceId="ends-2026-12-01T20:00:00", ResourceProperties=EIGHT_HOURS)
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "ends-2026-12-01T20:00:00")


@pytest.mark.parametrize("minutes", ["", "0", "-5", "eight"])
def test_length_that_is_none_fails_with_its_reason(send: Send, minutes: str) -> None:
    """An invalid duration fails the resource at once with the name of the property."""
    answer = send("Create", ResourceProperties={"Minutes": minutes})
    assert answer["Status"] == "FAILED"
    assert "Minutes" in answer["Reason"]


def test_unknown_request_fails(send: Send) -> None:
    """A request type that CloudFormation does not send today is answered with FAILED."""
    assert send("Inspect", ResourceProperties=EIGHT_HOURS)["Status"] == "FAILED"
