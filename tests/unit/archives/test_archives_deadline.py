"""The time limit of the function: the work stops first, then the undoing, then the answer is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.archives.errors import ArtifactError
from cohost.archives.reply import Deadline

if TYPE_CHECKING:
    from tests.unit.artifacts.conftest import Context


def test_work_stops_ten_seconds_before_the_end(context: type[Context]) -> None:
    """The work stops ten seconds before the end, which leaves time to undo and to answer."""
    clock = context(10)
    deadline = Deadline(clock)
    deadline.check()
    clock.seconds = 9.9
    with refused("publishing-too-slow"):
        deadline.check()


def test_undoing_may_take_longer_than_work(context: type[Context]) -> None:
    """Undoing a failed attempt may continue after the time limit of the work itself."""
    clock = context(9)
    deadline = Deadline(clock)
    deadline.allow_undo()
    deadline.check()
    clock.seconds = 5.9
    with pytest.raises(ArtifactError):
        deadline.check()


def test_nothing_goes_on_after_the_answer(context: type[Context]) -> None:
    """Work and undoing stop once another thread has answered, however much time is left."""
    deadline = Deadline(context(300))
    deadline.expire()
    deadline.allow_undo()
    with pytest.raises(ArtifactError):
        deadline.check()


def test_answer_goes_out_before_the_end(context: type[Context]) -> None:
    """The answer is sent five seconds before the end of the function, and never waits for a past time."""
    assert Deadline(context(300)).seconds_to_answer == 295
    assert Deadline(context(1)).seconds_to_answer == 0
