"""Marks: warnings about a run's numbers, such as a load generator at its limit or a run that was cut short.

The module also measures the load generator itself: the share of a core that it uses, and the delay of its timers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gevent
import numpy as np

from cohost.report.run import Mark
from cohost.report.samples import Outcome, answered, failed, latency_s, percentile
from load_tests.stage import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cohost.report.run import Phase, Run
    from cohost.report.samples import Samples


CPU_LIMIT = 0.9
"""The share of its core above which a generator process no longer keeps up with the answers."""

LAG_FLOOR_S, LAG_SHARE = 0.002, 0.1
"""The generator's own mean delay may be this many seconds, or this share of the median latency if that is more."""

NO_ANSWER = "no-answer"
ENDED_EARLY = "; fix: a longer -t, or a shorter --warmup"

MOST_FAILED = 0.01
"""The share of failed calls of a step above which the run is invalid, unless the user has set a limit."""

REACHED = 0.95
"""The share of the planned calls that must have been answered in an open load."""


def marks_of(run: Run, *, complete: bool, max_error_rate: float | None, p99_below: float | None) -> list[Mark]:
    """Return all marks (warnings about the numbers) of a run.

    `complete` is True if all planned phases ended. `max_error_rate` (a share of the calls) and `p99_below` (ms) are the
    user's limits; None means no limit.
    """
    found: list[Mark] = []
    if not complete:
        found.append(Mark(code="cut-short", message="the run was ended before its last step", invalid=False))
    measured = [(index, phase) for index, phase in enumerate(run.record.phases) if phase.kind == "measured"]
    for index, phase in measured:
        samples = run.of_phase(index)
        found += [*_generator(run, phase, samples), *_reached(phase, samples)]
    found += _lengths(run)
    found += _unanswered(run, measured)
    found += _failures(run, measured, max_error_rate)
    found += _slow(run, measured, p99_below)
    return found


def _generator(run: Run, phase: Phase, samples: Samples) -> Iterator[Mark]:
    generator, good = run.generator_in(phase), answered(samples)
    if generator is None or not len(good):
        return
    cpu, lag = generator
    # The emulator shares the generator's cores, and its speed is not a result, so with it these marks are warnings.
    alone = not run.record.target.emulated
    if cpu > CPU_LIMIT:
        message = (
            f"step {phase.name}: the generator used {cpu:.0%} of its core, so the target could have answered more; "
            "fix: add --processes, or call from a faster machine"
        )
        yield Mark(code="generator-cpu", message=message, invalid=alone)
    median = percentile(latency_s(good), 50)
    if lag > max(LAG_FLOOR_S, LAG_SHARE * median):
        message = (
            f"step {phase.name}: the generator read answers {lag * 1000:.1f} ms late on average, with a median latency "
            f"of {median * 1000:.1f} ms; fix: add --processes, or call from a machine with nothing else to do"
        )
        yield Mark(code="generator-lag", message=message, invalid=alone)


def _reached(phase: Phase, samples: Samples) -> Iterator[Mark]:
    if phase.rate is None or not len(samples):
        return
    in_time = int((answered(samples)["done"] <= phase.ended).sum())
    # No target can answer the calls before the end that were due in the last moments.
    slack = float(np.median(latency_s(answered(samples)))) if in_time else 0.0
    due = int((samples["planned"] <= phase.ended - min(slack, phase.seconds / 10)).sum())
    if in_time < REACHED * due:
        message = (
            f"step {phase.name}: {len(samples) / phase.seconds:.1f} calls/s were planned and "
            f"{in_time / phase.seconds:.1f} answered, so latencies grow with the length of the run; fix: lower --rate, "
            f"or raise -u ({phase.concurrency}) if the target had capacity left"
        )
        yield Mark(code="rate-not-reached", message=message, invalid=True)


def _lengths(run: Run) -> Iterator[Mark]:
    names = ", ".join(model.name for model in run.record.models if model.tokens is None)
    if names:
        message = (
            f"the texts of {names} have an unknown number of tokens, because no tokenizer was found; fix: name a "
            "folder of tokenizers with --hub, or the catalog with the models' ids with --catalog"
        )
        yield Mark(code="lengths-unknown", message=message, invalid=False)


def _unanswered(run: Run, measured: Sequence[tuple[int, Phase]]) -> Iterator[Mark]:
    """Yield a mark for the steps without an answered call, or for a run that ended before its first step."""
    reason = next((f": {call.model}: {call.failure}" for call in run.record.cold if call.failure), "")
    without = [phase.name for index, phase in measured if not len(answered(run.of_phase(index)))]
    if not measured:
        message = f"the run ended before its first measured step, so nothing was measured{reason or ENDED_EARLY}"
        yield Mark(code=NO_ANSWER, message=message, invalid=True)
    elif len(without) == len(measured):
        yield Mark(code=NO_ANSWER, message=f"no measured call was answered{reason}", invalid=True)
    else:
        if without:
            message = f"no call was answered in step {', '.join(without)}; fix: see the kinds of its failures"
            yield Mark(code=NO_ANSWER, message=message, invalid=True)
        for number, model in enumerate(run.record.models):
            if not any(len(answered(run.of_phase(index, number))) for index, _ in measured):
                message = f"no measured call of model {model.name} was answered; fix: see the kinds of its failures"
                yield Mark(code=NO_ANSWER, message=message, invalid=True)


def _failures(run: Run, measured: Sequence[tuple[int, Phase]], limit: float | None) -> Iterator[Mark]:
    """Yield a mark for each step in which calls failed: `error-rate` above the user's limit, otherwise `failures`.

    If the user set no limit, a share of failed calls above `MOST_FAILED` makes the step invalid, since its latencies
    are only those of successful calls.
    """
    for index, phase in measured:
        samples = run.of_phase(index)
        bad = failed(samples)
        sent = samples[samples["outcome"] != Outcome.UNSENT]
        if not len(bad):
            continue
        rate = len(bad) / len(sent)
        message = f"step {phase.name}: {rate:.2%} of the calls failed, most of them: {_most_frequent(bad)}"
        if limit is not None and rate > limit:
            yield Mark(code="error-rate", message=f"{message}; allowed: {limit:.2%}", invalid=False)
        else:
            invalid = limit is None and rate > MOST_FAILED
            more = f"; allowed: {MOST_FAILED:.2%}, or the limit --max-error-rate" if invalid else ""
            yield Mark(code="failures", message=f"{message}{more}", invalid=invalid)


def _most_frequent(bad: Samples) -> str:
    kinds, counts = np.unique(bad[["outcome", "status"]], return_counts=True)
    outcome, status = kinds[counts.argmax()]
    return Outcome(int(outcome)).counted_as(int(status))


def _slow(run: Run, measured: Sequence[tuple[int, Phase]], p99_below: float | None) -> Iterator[Mark]:
    for index, phase in measured:
        for number, model in enumerate(run.record.models):
            good = answered(run.of_phase(index, number))
            p99_ms = percentile(latency_s(good), 99) * 1000 if len(good) else 0.0
            if p99_below is not None and p99_ms >= p99_below:
                message = f"step {phase.name}: p99 of {model.name} is {p99_ms:.1f} ms; allowed: below {p99_below:g} ms"
                yield Mark(code="p99", message=message, invalid=False)


INTERVAL_S = 0.02
TICK_S = 1.0


def watch(record: Callable[[tuple[float, int, float, float, float]], None], rank: Callable[[], int]) -> None:
    """Record once per second, for ever, the state of this process: a row of TICK with CPU share and timer delay.

    If the process is busy, an answer waits until its greenlet can read the clock, as long as a timer is late. So the
    load generator itself adds the mean delay of its timers to each latency.
    """
    while True:
        started, cpu, late = time.perf_counter(), time.process_time(), []
        while time.perf_counter() - started < TICK_S:
            asleep = time.perf_counter()
            gevent.sleep(INTERVAL_S)
            late.append(max(0.0, time.perf_counter() - asleep - INTERVAL_S))
        share = (time.process_time() - cpu) / (time.perf_counter() - started)
        record((now(), rank(), share, sum(late) / len(late), max(late)))
