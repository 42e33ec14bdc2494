"""The order of passes over all models of a process, with models that are lists of passes whose times are given."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cohost.handler.cohost_frames import Level
from cohost.handler.cohost_scheduler import Lanes, Scheduler
from cohost.handler.cohost_watchdog import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 30.0


@dataclass(eq=False)
class Pass:
    """A pass that is said to have taken `takes` seconds; `gate` holds its launch up."""

    name: str
    takes: float = 0.01
    predicted: float | None = None
    since: float = 0.0
    gate: threading.Event | None = None
    started: float = 0.0
    watched: Watched | None = None
    seconds: float = 0.0

    @property
    def marks(self) -> list[str]:
        """One request each."""
        return [self.name]


@dataclass(eq=False)
class Log:
    """Launched and read passes, in order, and the threads that each lane was given."""

    launched: list[Pass] = field(default_factory=list)
    read: list[Pass] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    journal: list[list[str]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The launched passes."""
        return [one.name for one in self.launched]


class Model:
    """A model with passes that wait; a pass is held up at its launch, or on a GPU (`reads_later`) at its end."""

    def __init__(self, log: Log, *waiting: Pass, level: Level = Level.USUAL, share: float = 1.0) -> None:
        self.share = share
        self.reads_later = False
        self.failure: str | None = None
        self.waiting: dict[Level, list[Pass]] = {each: [] for each in Level}
        self.waiting[level] += waiting
        self._log = log

    def level(self, _now: float) -> Level | None:
        """The first with passes."""
        return min((level for level, passes in self.waiting.items() if passes), default=None)

    def waiting_since(self, level: Level) -> float:
        """That of the first pass."""
        return self.waiting[level][0].since

    def take(self, level: Level) -> Pass | None:
        """The first pass."""
        return self.waiting[level].pop(0)

    def predicted_s(self, one: Pass) -> float:
        """Return the seconds that the pass takes, unless the prediction is wrong."""
        return one.takes if one.predicted is None else one.predicted

    def launch(self, one: Pass) -> bool:
        """Begin."""
        self._log.launched.append(one)
        if one.gate is not None and not self.reads_later:
            assert one.gate.wait(LIMIT_S)
        return True

    def read(self, one: Pass) -> None:
        """End."""
        if one.gate is not None and self.reads_later:
            assert one.gate.wait(LIMIT_S)
        one.seconds = one.takes
        self._log.read.append(one)

    def fail_all(self, reason: str) -> None:
        """Note."""
        self.failure = reason


@contextmanager
def scheduling(
    log: Log, *models: Model, count: int = 1, depth: int = 1, threads: int = 1, lead_s: float = 0.0
) -> Iterator[Scheduler]:
    """A scheduler with models that are there before the first pass is chosen."""
    lanes = Lanes(count=count, depth=depth, threads=threads, lead_s=lead_s, use_threads=log.threads.append)
    scheduler = Scheduler(lanes, lambda marks: log.journal.append(list(marks)))
    with scheduler.changed:
        for model in models:
            scheduler.add(model)
        scheduler.changed.notify_all()
    try:
        yield scheduler
    finally:
        scheduler.close()


def waits(scheduler: Scheduler, model: Model, *passes: Pass, level: Level = Level.USUAL) -> None:
    """Have passes wait for a model."""
    with scheduler.changed:
        model.waiting[level] += passes
        scheduler.changed.notify_all()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what a lane does."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "it never happens"
        time.sleep(0.001)


def stays(condition: Callable[[], bool]) -> bool:
    """Return True if a condition holds for several times the time that a wrong scheduler would need."""
    limit = time.monotonic() + 0.05
    while time.monotonic() < limit:
        if not condition():
            return False
        time.sleep(0.001)
    return True


@pytest.mark.parametrize("predicted", [None, 0.0], ids=["predicted well", "not predicted"])
@pytest.mark.parametrize("share", [1, 3])
def test_models_with_work_get_seconds_by_their_share(share: int, predicted: float | None) -> None:
    """Not passes: long passes of one model do not take the device from short ones; a wrong prediction is corrected."""
    log = Log()
    slow = Model(log, *(Pass("slow", 0.04, predicted) for _ in range(120)), share=share)
    quick = Model(log, *(Pass("quick", 0.01, predicted) for _ in range(480)))
    with scheduling(log, slow, quick):
        until(lambda: len(log.read) == 600)
    seconds: Counter[str] = Counter()
    for one in log.launched[:150]:
        seconds[one.name] += one.takes  # type: ignore[assignment] # a sum of seconds
    assert abs(seconds["slow"] - share * seconds["quick"]) <= 0.04 * (share + 1)


def test_a_newcomers_text_waits_for_one_pass_of_another_model_at_most() -> None:
    """A request of 800 sequences is some twenty passes, of which one is in the way."""
    log, gates = Log(), [threading.Event() for _ in range(20)]
    huge = Model(log, *(Pass("huge", gate=gate) for gate in gates))
    other = Model(log)
    with scheduling(log, huge, other) as scheduler:
        gates[0].set()
        until(lambda: len(log.launched) == 2)
        waits(scheduler, other, Pass("text", since=99.0))
        for gate in gates:
            gate.set()
        until(lambda: len(log.read) == 21)
    assert log.names.index("text") == 2


def test_an_idle_model_saves_no_time_up() -> None:
    """After a rest it shares the device with a busy model from the first pass on, and does not take it over."""
    log, gate = Log(), threading.Event()
    busy = Model(log, *(Pass("busy") for _ in range(50)), Pass("busy", gate=gate), *(Pass("busy") for _ in range(20)))
    rested = Model(log)
    with scheduling(log, busy, rested) as scheduler:
        until(lambda: len(log.launched) == 51)
        waits(scheduler, rested, *(Pass("rested") for _ in range(20)))
        gate.set()
        until(lambda: len(log.read) == 91)
    assert Counter(log.names[51:71]) in ({"busy": 10, "rested": 10}, {"busy": 9, "rested": 11})


def test_a_model_that_was_just_loaded_does_not_take_the_device_over() -> None:
    """Its account begins where those of the others are."""
    log, gate = Log(), threading.Event()
    busy = Model(log, *(Pass("busy") for _ in range(50)), Pass("busy", gate=gate), *(Pass("busy") for _ in range(20)))
    with scheduling(log, busy) as scheduler:
        until(lambda: len(log.launched) == 51)
        scheduler.add(new := Model(log, *(Pass("new") for _ in range(20))))
        gate.set()
        until(lambda: len(log.read) == 91)
        assert new.level(0.0) is None
    assert Counter(log.names[51:71]) in ({"busy": 10, "new": 10}, {"busy": 9, "new": 11})


def test_among_equals_the_oldest_request_is_first() -> None:
    """Whatever the order in which the models were loaded."""
    log = Log()
    models = [Model(log, Pass(f"{since:g}", since=since)) for since in (30.0, 10.0, 20.0)]
    with scheduling(log, *models):
        until(lambda: len(log.read) == 3)
    assert log.names == ["10", "20", "30"]


def test_bulk_requests_run_when_nothing_else_waits() -> None:
    """Even if their model has had nothing so far, and they wait longer."""
    log = Log()
    bulk = Model(log, *(Pass("bulk") for _ in range(3)), level=Level.BULK)
    usual = Model(log, *(Pass("usual", since=9.0) for _ in range(3)))
    with scheduling(log, bulk, usual):
        until(lambda: len(log.read) == 6)
    assert log.names == ["usual"] * 3 + ["bulk"] * 3


@pytest.mark.parametrize(("count", "depth"), [(2, 2), (1, 2)], ids=["CPU", "GPU"])
def test_a_second_attempt_runs_with_nothing_beside(count: int, depth: int) -> None:
    """It may be what ended the last process, and a request beside would be taken for a culprit too."""
    log, gates = Log(), [threading.Event() for _ in range(2)]
    usual, second = Model(log, Pass("usual", gate=gates[0])), Model(log)
    usual.reads_later = second.reads_later = count < depth
    with scheduling(log, usual, second, count=count, depth=depth) as scheduler:
        until(lambda: log.names == ["usual"])
        waits(scheduler, second, Pass("alone", gate=gates[1]), level=Level.ALONE)
        assert stays(lambda: log.names == ["usual"])
        gates[0].set()
        until(lambda: log.names == ["usual", "alone"])
        waits(scheduler, usual, Pass("later"))
        assert stays(lambda: log.names == ["usual", "alone"])
        gates[1].set()
        until(lambda: log.names == ["usual", "alone", "later"])


def test_a_measurement_has_the_device_alone() -> None:
    """It waits for running passes, no pass begins meanwhile, and the watchdog sees it."""
    log, gate, measured = Log(), threading.Event(), Watched(1.0)
    model = Model(log, Pass("first", gate=gate), Pass("second"))
    with scheduling(log, model) as scheduler:
        until(lambda: log.names == ["first"])
        entered = threading.Event()

        def measure() -> None:
            with scheduler.alone(measured):
                entered.set()
                assert stays(lambda: log.names == ["first"])
                assert scheduler.watched == [measured]

        thread = threading.Thread(target=measure)
        thread.start()
        assert not entered.wait(0.05)
        gate.set()
        thread.join(LIMIT_S)
        assert entered.is_set()
        until(lambda: log.names == ["first", "second"])
        assert scheduler.watched == []


def test_between_two_measurements_a_waiting_model_gets_a_pass() -> None:
    """A load takes some hundred of them, and other models' callers would wait for all."""
    log = Log()
    model = Model(log)
    with scheduling(log, model) as scheduler:
        with scheduler.alone(Watched(1.0)):
            waits(scheduler, model, *(Pass(f"{number}") for number in range(3)))
        for number in range(1, 4):
            with scheduler.alone(Watched(1.0)):
                assert len(log.read) >= number
        assert log.names == ["0", "1", "2"]


@pytest.mark.parametrize(("models", "threads"), [(1, [4]), (2, [2, 2])])
def test_two_lanes_halve_the_threads_only_when_two_models_have_work(models: int, threads: list[int]) -> None:
    """One model with work has all threads of the CPU."""
    log, gates = Log(), [threading.Event() for _ in range(models)]
    idle = Model(log)
    with scheduling(log, *(Model(log, Pass("a", gate=gate)) for gate in gates), idle, count=2, depth=2, threads=4):
        until(lambda: len(log.launched) == models)
        for gate in gates:
            gate.set()
        until(lambda: len(log.read) == models)
    assert log.threads == threads


def test_a_models_own_passes_run_one_after_another_on_a_cpu() -> None:
    """Each could use all threads, so two beside each other would only wait longer."""
    log, gate = Log(), threading.Event()
    with scheduling(log, Model(log, Pass("a", gate=gate), Pass("b")), count=2, depth=2):
        until(lambda: log.names == ["a"])
        assert stays(lambda: log.names == ["a"])
        gate.set()
        until(lambda: log.names == ["a", "b"])


def test_a_gpu_has_two_passes_launched_and_they_are_read_in_order() -> None:
    """The second is launched while the first runs, the third when the first has ended."""
    log, gates = Log(), [threading.Event() for _ in range(2)]
    model = Model(log, Pass("1", gate=gates[0]), Pass("2", gate=gates[1]), Pass("3"))
    model.reads_later = True
    with scheduling(log, model, depth=2):
        until(lambda: log.names == ["1", "2"])
        assert stays(lambda: log.names == ["1", "2"])
        gates[1].set()
        assert stays(lambda: log.read == [])
        gates[0].set()
        until(lambda: len(log.read) == 3)
    assert [one.name for one in log.read] == ["1", "2", "3"]


def test_a_model_is_dropped_after_its_running_pass() -> None:
    """Its weights are in use until then; what waits is not begun."""
    log, gate = Log(), threading.Event()
    model = Model(log, Pass("runs", gate=gate), Pass("waits"))
    with scheduling(log, model) as scheduler:
        until(lambda: log.names == ["runs"])
        thread = threading.Thread(target=scheduler.remove, args=(model,))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        gate.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        assert stays(lambda: log.names == ["runs"])


def test_the_journal_holds_the_requests_of_the_running_passes() -> None:
    """Written before a pass is launched, so that it is there whenever the process ends."""
    log, gates = Log(), [threading.Event() for _ in range(2)]
    one, two = Model(log, Pass("a", gate=gates[0])), Model(log, Pass("b", gate=gates[1]))
    with scheduling(log, one, two, count=2, depth=2):
        until(lambda: len(log.launched) == 2)
        assert sorted(log.journal[1]) == ["a", "b"]
        gates[0].set()
        until(lambda: len(log.journal) == 3)
        gates[1].set()
        until(lambda: len(log.journal) == 4)
    assert log.journal[2:] == [["b"], []]


def test_a_lane_that_fails_ends_every_model_and_dropping_them_does_not_wait() -> None:
    """No thread would ever end their passes."""
    log = Log()
    model, other = Model(log, Pass("a")), Model(log)

    def read(_: Pass) -> None:
        raise KeyError("a fault of our own")

    model.read = read  # type: ignore[method-assign] # a fault
    with scheduling(log, model, other) as scheduler:
        until(lambda: None not in (model.failure, other.failure))
        thread = threading.Thread(target=scheduler.remove, args=(model,))
        thread.start()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_a_pass_that_has_all_threads_ends_before_another_model_begins() -> None:
    """A second pass beside it would take turns with its threads on the same cores, and both would be slower."""
    log, gate = Log(), threading.Event()
    one, two = Model(log, Pass("a", gate=gate)), Model(log)
    with scheduling(log, one, two, count=2, depth=2, threads=2) as scheduler:
        until(lambda: len(log.launched) == 1)
        waits(scheduler, two, Pass("b"))
        time.sleep(0.05)
        assert len(log.launched) == 1
        gate.set()
        until(lambda: len(log.launched) == 2)
