"""Work outside of requests: tasks and loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import EndpointConnectionError

from local_aws.kit.background import BackgroundTasks, DueLoop
from local_aws.kit.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LIMIT_S = 60


class Work:
    """Work of a loop that is due at the times of one list, and fails by the errors of another."""

    def __init__(self, *due: float) -> None:
        self.machine = 1000.0
        self.clock = Clock(machine=lambda: self.machine)
        self.due = list(due)
        self.faults: list[Exception] = []
        self.done = asyncio.Queue[float]()

    def next_due(self) -> float | None:
        """Return the next time, or None at the end of the list."""
        return self.due[0] if self.due else None

    async def run(self) -> None:
        """Fail, or report the time."""
        del self.due[:1]
        if self.faults:
            raise self.faults.pop()
        await self.done.put(self.clock.now())

    def play(self, scene: Callable[[DueLoop], Coroutine[None, None, None]]) -> None:
        """Play a scene while a loop of this work runs."""

        async def whole() -> None:
            loop = DueLoop("Work", self.clock, next_due=self.next_due, work=self.run, pause_s=0)
            loop.start()
            await asyncio.wait_for(scene(loop), LIMIT_S)
            await loop.stop()

        asyncio.run(whole())


def test_loop_runs_what_is_due_and_then_waits() -> None:
    """The loop runs once for each past time, and then only after a wake-up."""
    work = Work(900.0, 1000.0)

    async def scene(loop: DueLoop) -> None:
        assert [await work.done.get(), await work.done.get()] == [1000.0, 1000.0]
        assert work.done.empty()
        loop.wake()
        assert await work.done.get() == 1000.0

    work.play(scene)


def test_another_speed_of_the_clock_wakes_the_loop() -> None:
    """Work that was due in hours may now be due in seconds."""
    work = Work(1000.0 + 3600)

    async def scene(loop: DueLoop) -> None:
        del loop
        # Once around, so that the loop waits already.
        await asyncio.sleep(0)
        work.clock.set_speed(3600)
        await work.done.get()

    work.play(scene)


@pytest.mark.parametrize(
    ("fault", "level"), [(EndpointConnectionError(endpoint_url="http://x"), "INFO"), (LookupError("odd"), "ERROR")]
)
def test_fault_is_logged_and_the_loop_goes_on(fault: Exception, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """A failed call is logged in a line and an error of the emulator with a trace, and the loop continues."""
    work = Work(900.0, 950.0)
    work.faults.append(fault)
    caplog.set_level("INFO")

    async def scene(loop: DueLoop) -> None:
        del loop
        await work.done.get()

    work.play(scene)
    (record,) = caplog.records
    assert (record.levelname, "Work" in record.getMessage()) == (level, True)


def test_loop_that_never_started_stops_at_once() -> None:
    """A loop that was never started can be stopped."""
    asyncio.run(DueLoop("Work", Clock(), next_due=lambda: None, work=Work().run).stop())


def test_tasks_are_cancelled_and_cleaned_up_at_the_end() -> None:
    """A cancelled task can clean up."""
    tidied = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.append(True)

    async def scene() -> None:
        tasks = BackgroundTasks()
        tasks.begin(forever())
        await asyncio.sleep(0)
        await tasks.give_up()

    asyncio.run(scene())
    assert tidied == [True]


def test_failed_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The exception of a background task is logged, because no code waits for its result."""

    async def fail() -> None:
        raise LookupError("odd")

    async def scene() -> None:
        tasks = BackgroundTasks()
        tasks.begin(fail())
        # One turn for the task, one for its end.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.give_up()

    asyncio.run(scene())
    assert "odd" in caplog.text
