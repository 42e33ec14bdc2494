"""Shared waiting: one caller retries, and the others wait for its result."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cohost.waiting import Backoff, Clock, Gate, LimitPassedError, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 60.0


class Refused(Exception):  # noqa: N818 - named after what it is
    """The rejection of these tests."""


class Time:
    """A clock that advances only by sleeping, without jitter by default."""

    def __init__(self, jitter: float = 0.0) -> None:
        self.at = 0.0
        self.pauses: list[float] = []
        self.clock = Clock(now=lambda: self.at, sleep=self._sleep, jitter=lambda: jitter)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds


class Service:
    """Rejects this number of calls, then answers."""

    def __init__(self, refusals: int) -> None:
        self.calls = 0
        self._refusals = refusals

    def send(self) -> str:
        """Make one call."""
        self.calls += 1
        if self.calls <= self._refusals:
            raise Refused(f"call {self.calls}")
        return "answer"


def gate(clock: Clock, look: Callable[[], bool] = lambda: True) -> Gate:
    """A gate with pauses from 1 s to 8 s."""
    return Gate(Refused, backoff=Backoff(first_s=1, longest_s=8), clock=clock, look=look)


def ignore(_: Waiting) -> None:
    """Ignore the progress."""


def test_an_answer_needs_no_pause() -> None:
    """A wait ends without a pause if the first attempt gets an answer."""
    time_, service = Time(), Service(0)

    assert gate(time_.clock).run(service.send, limit_s=LIMIT_S, notice=ignore) == "answer"
    assert (service.calls, time_.pauses) == (1, [])


def test_pauses_double_up_to_the_longest_and_are_told() -> None:
    """Pauses double up to the longest, and the progress callback is called before each."""
    time_, service, told = Time(), Service(5), list[Waiting]()

    assert gate(time_.clock).run(service.send, limit_s=LIMIT_S, notice=told.append) == "answer"
    assert time_.pauses == [1, 2, 4, 8, 8]
    assert [(now.waited_s, now.limit_s) for now in told] == [(at, LIMIT_S) for at in (0, 1, 3, 7, 15)]


def test_pauses_are_shortened_by_chance() -> None:
    """Pauses are shortened at random, so clients do not retry together."""
    time_ = Time(jitter=0.5)

    gate(time_.clock).run(Service(2).send, limit_s=LIMIT_S, notice=ignore)
    assert time_.pauses == [0.75, 1.5]


def test_the_limit_ends_the_wait_with_the_last_refusal() -> None:
    """The last call is made exactly at the limit, and its rejection is raised."""
    time_, service = Time(), Service(100)

    with pytest.raises(LimitPassedError) as caught:
        gate(time_.clock).run(service.send, limit_s=10, notice=ignore)
    assert (time_.pauses, str(caught.value.last)) == ([1, 2, 4, 3], "call 5")


def test_a_second_wait_begins_with_short_pauses() -> None:
    """A second wait starts with short pauses again, not with the long ones at the end of the first wait."""
    time_ = Time()
    waits = gate(time_.clock)
    waits.run(Service(3).send, limit_s=LIMIT_S, notice=ignore)
    time_.pauses.clear()

    waits.run(Service(1).send, limit_s=LIMIT_S, notice=ignore)
    assert time_.pauses == [1]


def test_another_fault_is_not_repeated() -> None:
    """Only the expected rejection is retried, and any other error is raised."""
    calls = []

    def send() -> None:
        calls.append(1)
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        gate(Time().clock).run(send, limit_s=LIMIT_S, notice=ignore)
    assert len(calls) == 1


def test_nothing_is_sent_while_a_look_says_that_it_is_too_early() -> None:
    """No call is sent while a check says that it would fail."""
    time_, service = Time(), Service(1)
    looks = iter([False, False, True])

    assert gate(time_.clock, lambda: next(looks)).run(service.send, limit_s=LIMIT_S, notice=ignore) == "answer"
    assert (service.calls, time_.pauses) == (2, [1, 2, 4])


class Crowd:
    """Callers in threads; the one that retries pauses until the test continues it."""

    def __init__(self, callers: int, *, limit_s: float = LIMIT_S) -> None:
        self.released = threading.Event()
        self.pausing = threading.Semaphore(0)
        self.told = threading.Semaphore(0)
        self.gate = gate(Clock(sleep=self._sleep))
        self.limit_s = limit_s
        self.pool = ThreadPoolExecutor(callers)

    def _sleep(self, _: float) -> None:
        self.pausing.release()
        assert self.released.wait(60)

    def call(self, send: Callable[[], str]) -> str:
        """Make one call that waits."""
        return self.gate.run(send, limit_s=self.limit_s, notice=lambda _: self.told.release())


def test_one_of_many_callers_asks_and_all_are_answered() -> None:
    """Of fifty callers one retries, and the others send nothing until it is answered."""
    crowd, service = Crowd(51), Service(1)
    with crowd.pool as pool:
        first = pool.submit(crowd.call, service.send)
        assert crowd.pausing.acquire(timeout=60)
        others = [pool.submit(crowd.call, service.send) for _ in range(50)]
        for _ in range(51):
            assert crowd.told.acquire(timeout=60)
        assert service.calls == 1
        crowd.released.set()
        assert [call.result(60) for call in (first, *others)] == ["answer"] * 51
    assert service.calls == 52


def test_an_answer_to_somebody_else_lets_all_through() -> None:
    """A successful call outside the wait ends the wait of all callers."""
    crowd, service = Crowd(2), Service(1)
    with crowd.pool as pool:
        asking = pool.submit(crowd.call, service.send)
        assert crowd.pausing.acquire(timeout=60)
        waiting = pool.submit(crowd.call, service.send)
        assert crowd.told.acquire(timeout=60)
        assert crowd.told.acquire(timeout=60)
        crowd.gate.open()
        assert waiting.result(60) == "answer"
        crowd.released.set()
        assert asking.result(60) == "answer"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_whoever_stops_asking_hands_the_turn_on(fault: type[BaseException]) -> None:
    """If the retrying caller stops by Ctrl-C or an error, another caller retries."""
    crowd, service = Crowd(2), Service(1)

    def broken() -> str:
        if service.calls:
            raise fault
        return service.send()

    with crowd.pool as pool:
        asking = pool.submit(crowd.call, broken)
        assert crowd.pausing.acquire(timeout=60)
        waiting = pool.submit(crowd.call, service.send)
        for _ in range(2):
            assert crowd.told.acquire(timeout=60)
        crowd.released.set()
        with pytest.raises(fault):
            asking.result(60)
        assert waiting.result(60) == "answer"


def test_one_who_waits_for_another_keeps_its_own_limit() -> None:
    """A waiting caller ends at its own limit with the last rejection of the retrying one."""
    crowd, service = Crowd(2), Service(1)
    with crowd.pool as pool:
        asking = pool.submit(crowd.call, service.send)
        assert crowd.pausing.acquire(timeout=60)
        crowd.limit_s = 0.01
        with pytest.raises(LimitPassedError, match="call 1"):
            pool.submit(crowd.call, service.send).result(60)
        crowd.released.set()
        assert asking.result(60) == "answer"
    assert service.calls == 2


def test_the_default_clock_is_the_machine_s() -> None:
    """A gate without a clock waits in the machine's time."""
    clock = Clock()
    before = time.monotonic()
    clock.sleep(0.001)
    assert before < clock.now() <= time.monotonic()
    assert 0 <= clock.jitter() < 1
