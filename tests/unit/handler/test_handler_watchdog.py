"""The end of a process that can serve no more: a pass that hangs, a blocked event loop, callers that are answered."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import MINILM, HeldForward, InProcess, properties, served
from test_handler_engine import SETTINGS, FakeForward, busy, outputs, sequences

import cohost.handler
from cohost.handler.cohost_batches import Counters
from cohost.handler.cohost_engine import Engine, EngineSettings
from cohost.handler.cohost_errors import BusyError
from cohost.handler.cohost_scheduler import Lanes, Scheduler
from cohost.handler.cohost_warm_up import pass_timeout
from cohost.handler.cohost_watchdog import Ending, Watchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from handler_calls import Caller

ROOT = Path(cohost.handler.__file__).parents[2]

# Native code that keeps Python's lock, so that no thread of Python gets a turn: a regular expression without an end.
HOLD = """
import asyncio, re, sys, threading
sys.path.insert(0, {root!r})
from types import SimpleNamespace
from cohost.handler import cohost_watchdog

cohost_watchdog._LAST_RESORT_S = 0.5
passes = SimpleNamespace(watched=[])

async def main():
    cohost_watchdog.Watchdog(passes, asyncio.get_running_loop(), print, 0.5, last_resort=True)
    await asyncio.sleep(0.2)
    sys.setswitchinterval(1000)
    re.match("(a+)+$", "a" * 64 + "b")

asyncio.run(main())
"""


def watched(
    forward: FakeForward,
    scenario: Callable[[Engine], Awaitable[Any]],
    exits: list[int],
    limit_s: float = 0.4,
    **given: Any,
) -> None:
    """Lets a scenario use an engine that is watched; the process's end is noted instead."""

    async def main() -> None:
        made = EngineSettings(**SETTINGS | {"pass_timeout_s": limit_s} | given)
        scheduler = Scheduler(Lanes(depth=forward.depth))
        engine = Engine(forward, made, Counters(), lambda: None, scheduler)  # type: ignore[arg-type] # a stand-in
        watchdog = Watchdog(scheduler, asyncio.get_running_loop(), exits.append, limit_s, engine.expire)
        try:
            await asyncio.wait_for(scenario(engine), 60)
        finally:
            watchdog.stop()
            forward.gate.set()
            engine.stop()
            scheduler.close()

    asyncio.run(main())


async def noted(exits: list[int]) -> None:
    """Waits until the process would have ended."""
    while not exits:  # noqa: ASYNC110 - a thread appends to it
        await asyncio.sleep(0.01)


def test_a_pass_that_hangs_ends_the_process_and_answers_nobody() -> None:
    """The proxies send the calls again, those in the pass and those in the queue, so no answer may have left before."""
    exits: list[int] = []

    async def scenario(engine: Engine) -> None:
        tasks = [await busy(engine, forward), *(asyncio.create_task(engine.run(sequences(n))) for n in (1, 2))]
        await noted(exits)
        assert not any(task.done() for task in tasks)

    forward = FakeForward()
    watched(forward, scenario, exits)
    assert exits == [4]
    assert forward.batches == [[0]]


def test_passes_within_their_limit_are_left_alone() -> None:
    """Each of many passes has its own full time limit."""
    exits: list[int] = []

    async def scenario(engine: Engine) -> None:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            assert outputs(await engine.run(sequences(1))) == [1]

    watched(FakeForward(), scenario, exits)
    assert exits == []


def test_a_pass_that_compiles_may_take_longer_than_one_that_does_not() -> None:
    """The first pass of a new shape has a longer limit, because it compiles."""
    exits: list[int] = []

    async def scenario(engine: Engine) -> None:
        first = await busy(engine, forward)
        await asyncio.sleep(1.0)
        forward.gate.set()
        assert outputs(await first) == [0]
        await busy(engine, forward)
        await noted(exits)

    forward = FakeForward()
    watched(forward, scenario, exits, compiles=True)
    assert exits == [4]


def test_a_shape_that_was_compiled_on_load_has_the_usual_limit() -> None:
    """A pass of a compiled shape has the usual time limit, because it needs no compilation."""
    exits: list[int] = []

    async def scenario(engine: Engine) -> None:
        await busy(engine, forward)
        await noted(exits)

    forward = FakeForward()
    watched(forward, scenario, exits, compiles=True, compiled=frozenset({(False, 10)}))
    assert exits == [4]


def test_a_blocked_event_loop_ends_the_process() -> None:
    """No answer can leave such a process; its proxies send the calls to the next one."""
    exits: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        exits.append(code)
        ended.set()

    async def main() -> None:
        watchdog = Watchdog(Scheduler(Lanes()), asyncio.get_running_loop(), end, 0.4)
        assert ended.wait(30)  # blocks the loop
        watchdog.stop()

    asyncio.run(main())
    assert exits == [5]


def test_a_request_that_waits_behind_a_long_pass_is_told_in_time() -> None:
    """A request behind a long pass gets 503 after max_queue_time_ms."""
    exits: list[int] = []

    async def scenario(engine: Engine) -> None:
        in_pass = await busy(engine, forward)
        with pytest.raises(BusyError, match=r"waited longer than 0\.2 s"):
            await engine.run(sequences(1))
        forward.gate.set()
        assert outputs(await in_pass) == [0]

    forward = FakeForward()
    watched(forward, scenario, exits, limit_s=30.0, max_queue_time_s=0.2)
    assert exits == []


def test_the_process_ends_when_its_callers_are_answered_and_only_once() -> None:
    """The process ends once, with the first exit code, after its callers are answered."""
    waiting, exits, ended = [1], [], threading.Event()

    def end(code: int) -> None:
        exits.append((code, tuple(waiting)))
        ended.set()

    ending = Ending(lambda: waiting[0], end, flush_s=0.01, grace_s=30)
    ending.begin(3)
    ending.begin(4)
    assert not ended.wait(0.1)
    waiting[0] = 0
    assert ended.wait(30)
    assert exits == [(3, (0,))]


def test_a_served_model_that_hangs_ends_the_process_by_its_own_setting(caplog: pytest.LogCaptureFixture) -> None:
    """The catalog's pass_timeout_s holds, unless a loaded machine is so slow that the log says how far it is raised."""
    backend = InProcess()

    async def scenario(call: Caller) -> None:
        engine = backend.hosted._engine
        assert engine is not None
        engine._forward = held = HeldForward(engine._forward)  # type: ignore[assignment] # a wrapper
        task = asyncio.create_task(call({"inputs": "a"}))
        await noted(backend.ends)
        assert not task.done()
        held.gate.set()
        await task

    served(properties(MINILM, pass_timeout_s=1), scenario, backend)
    assert backend.ends == [4]
    found = re.search(r"a pass ran over (\S+) s; the process ends", caplog.text)
    assert found is not None
    assert found[1] == "1" or f"pass_timeout_s: 1 is raised to {float(found[1]):.1f}," in caplog.text


def test_the_limit_is_never_under_three_times_the_largest_pass(caplog: pytest.LogCaptureFixture) -> None:
    """The time limit is at least three times the largest pass, and the log says if the setting was raised."""
    assert pass_timeout(20, 6) == 20
    assert not caplog.records
    assert pass_timeout(20, 10) == 30
    assert "pass_timeout_s: 20 is raised to 30.0" in caplog.text


@pytest.mark.process
def test_native_code_that_keeps_pythons_lock_ends_the_process() -> None:
    """If native code keeps Python's lock, the interpreter's timer writes the place and ends the process."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = HOLD.format(root=str(ROOT))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "Timeout" in done.stderr
        return
    pytest.fail("it hangs")
