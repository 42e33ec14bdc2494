"""The engine: a thread that launches passes, and on a GPU a second thread that reads their results.

On a CPU the next batch is taken as soon as the last one is done; on a GPU while the last one runs, so that the device
is never idle. Requests come from the event loop, and results return to the loop batch by batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .cohost_batches import BatchLimits, BatchLog, Counters, FairQueue, Ticket, TokenBudget, in_order, together
from .cohost_errors import BusyError, HandlerError, MemoryExhaustedError, ModelError, reason_of
from .cohost_memory import is_lost_device, is_out_of_memory, return_free_memory
from .cohost_watchdog import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cohost_forward import Forward, Pending, TokenSequence
    from .cohost_tasks import Floats

    Member = tuple[Ticket[TokenSequence], TokenSequence]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_CANDIDATES = 4
# A compiler needs seconds to minutes per shape; an hour would be a hang.
_FIRST_OF_A_SHAPE_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """The limits of an engine.

    `max_batch_tokens` includes padding, `floor_tokens` is the model's limit in tokens, and `pass_cost` is the fixed
    cost of a pass in tokens. A shape is (True for more than one sequence, tokens per sequence). With `compiles`, the
    first pass of each shape may take minutes, unless the shape is in `compiled`.
    """

    max_batch_tokens: int
    max_batch_sequences: int
    floor_tokens: int
    pass_cost: int
    max_queued_sequences: int
    max_queue_time_s: float
    log_interval_s: float = 60.0
    pass_timeout_s: float = 20.0
    compiles: bool = False
    compiled: frozenset[tuple[bool, int]] = frozenset()


@dataclass(slots=True)
class Outcome:
    """The results of one request: `outputs` in the order of its sequences, and the sizes of the batches that ran them.

    A size is (sequences, tokens with padding). `queue_s` is the wait until the last sequence was taken, `forward_s`
    the time of all the batches.
    """

    outputs: list[Floats]
    batches: list[tuple[int, int]] = field(default_factory=list)
    queue_s: float = 0.0
    forward_s: float = 0.0


@dataclass(eq=False, slots=True)
class _Request(Ticket["TokenSequence"]):
    """A request in the queue with its results so far; only the event loop changes it, except for `waiting`."""

    results: list[Floats | None] = field(default_factory=list)
    missing: int = 0
    outcome: Outcome = field(default_factory=lambda: Outcome([]))
    done: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False, slots=True)
class _Pass:
    """A pass, from the choice of its sequences to its results; `size` is (sequences, tokens with padding)."""

    members: Sequence[Member]
    started: float
    size: tuple[int, int] = (0, 0)
    watched: Watched | None = None
    pending: Pending | None = None


class ModelThread:
    """The thread in which a model is loaded, warmed up and run.

    One thread does all of it, because CUDA keeps the current GPU, and the libraries' working memory, per thread.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="cohost-engine", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in the model's thread, and wait for its result.

        Raises:
            Exception: any exception that the function raises.
        """
        future: Future[Result] = Future()
        self.start(partial(_fulfil, future, function))
        try:
            return future.result()
        finally:
            # An error refers to this frame, and would be kept by it with all that was loaded.
            del future

    def start(self, job: Callable[[], None]) -> None:
        """Run a function in the model's thread, without waiting for its end."""
        self._jobs.put(job)

    def close(self) -> None:
        """Wait for the started jobs, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job


def _fulfil(future: Future[Result], function: Callable[[], Result]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the error is raised where the result is awaited
        future.set_exception(error)


class Engine:
    """The engine of one model: queues sequences, and runs them through `forward` in batches.

    `on_lost_device` is called if only a new process can serve the model.
    """

    def __init__(
        self,
        forward: Forward,
        settings: EngineSettings,
        counters: Counters,
        on_lost_device: Callable[[], None],
        thread: ModelThread,
    ) -> None:
        self._forward = forward
        self._settings = settings
        self._counters = counters
        self._on_lost_device = on_lost_device
        self._log = BatchLog(counters, settings.log_interval_s, time.monotonic())
        self._budget = TokenBudget(settings.max_batch_tokens, settings.floor_tokens)
        self._queue: FairQueue[TokenSequence] = FairQueue(settings.max_queued_sequences)
        self._changed = threading.Condition()
        self._refusal: BusyError | None = None
        self._running: deque[_Pass] = deque()
        self._halves: deque[Sequence[Member]] = deque()
        self._last_read = 0.0
        self._compiled = set(settings.compiled)
        self._loop = asyncio.get_running_loop()
        self._launched: SimpleQueue[_Pass | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._guarded, args=(self._read_all,), name="cohost-reader", daemon=True)
        self._reader.start()
        self._thread = thread
        thread.start(lambda: self._guarded(self._launch_all))

    @property
    def watched(self) -> Watched | None:
        """Return the pass that the device works on, the oldest of the running ones; None between passes."""
        with self._changed:
            return self._running[0].watched if self._running else None

    async def run(self, sequences: Sequence[TokenSequence]) -> Outcome:
        """Queue the sequences of one request and wait for all of them; on cancellation, remove them from the queue.

        Raises:
            BusyError: the queue is full, the request waited too long, or the process ends.
            MemoryExhaustedError: memory ran out for one sequence alone.
            ModelError: the model failed on one of the sequences, or returned a number that is not finite.
        """
        request = _Request(results=[None] * len(sequences), missing=len(sequences))
        with self._changed:
            if self._refusal is not None:
                raise self._refusal
            self._queue.add(request, sequences, time.monotonic())
            self._changed.notify()
        try:
            return await request.done
        finally:
            # However the wait ended, no sequence of the request may use the device any more.
            with self._changed:
                self._queue.drop(request)

    def stop(self) -> None:
        """End the threads after the current passes, and refuse the waiting requests."""
        self._give_up(BusyError("the model's process is shutting down; send the request again in some seconds"))
        self._thread.close()
        self._reader.join()

    def expire(self) -> None:
        """Refuse the requests that have waited longer than `max_queue_time_s`.

        It may be called from any thread: the engine itself checks only between passes, so the watchdog calls it too.
        """
        with self._changed:
            late = self._queue.expire(time.monotonic() - self._settings.max_queue_time_s)
        if late:
            self._call(self._refuse, late, self._waited_too_long())

    def abandon(self, refusal: BusyError) -> None:
        """Refuse all requests, including those in the current passes, and accept no new ones; safe in any thread."""
        with self._changed:
            tickets = [ticket for one in self._running for ticket, _ in one.members]
        self._call(self._refuse, tickets, refusal)
        self._give_up(refusal)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            # Without the thread that has failed, every caller would wait for ever.
            logger.exception("the thread that runs the model has failed")
            self._end("the thread that runs the model failed")

    def _launch_all(self) -> None:
        """Launch passes until the engine stops; on a GPU the reader thread reads the results, else this thread."""
        try:
            while (one := self._next()) is not None:
                if not self._launch(one):
                    continue
                if self._forward.depth > 1:
                    self._launched.put(one)
                else:
                    self._read(one)
        finally:
            self._launched.put(None)

    def _read_all(self) -> None:
        while (one := self._launched.get()) is not None:
            self._read(one)

    def _next(self) -> _Pass | None:
        """Wait until a pass can be launched, and return that pass; return None once the engine stops."""
        with self._changed:
            while self._refusal is None:
                members = self._waiting()
                if members:
                    # Under the lock, so that `abandon` finds these requests in the queue or among the running passes.
                    one = _Pass(members, time.monotonic())
                    self._running.append(one)
                    return one
                self._changed.wait()
        return None

    def _waiting(self) -> Sequence[Member]:
        """Remove and return the members of the next pass; an empty sequence if no pass can be launched now."""
        if self._halves:
            # The halves of a failed pass run alone, since memory may be short.
            return () if self._running else self._halves.popleft()
        if len(self._running) == self._forward.depth:
            return ()
        self.expire()
        return self._take() if len(self._queue) else ()

    def _take(self) -> list[Member]:
        limits = BatchLimits(self._budget.tokens, self._settings.max_batch_sequences, self._settings.pass_cost)
        return self._queue.take(_CANDIDATES * limits.sequences, lambda candidates: self._choose(candidates, limits))

    def _choose(self, candidates: Sequence[TokenSequence], limits: BatchLimits) -> list[int]:
        """Return the batch of the first candidate, from the candidates that run in the same way (packed or padded)."""
        packs = self._forward.packs(candidates[0])
        places = [index for index, one in enumerate(candidates) if self._forward.packs(one) is packs]
        form = in_order if packs else together
        lengths = [self._forward.length_of(candidates[place]) for place in places]
        return [places[index] for index in form(lengths, limits)]

    def _launch(self, one: _Pass) -> bool:
        """Launch a pass that the watchdog can see, and return False if the launch failed.

        The pass's time limit is longer if its shape may have to be compiled first.
        """
        sequences = [sequence for _, sequence in one.members]
        one.size = (len(sequences), self._forward.tokens_of(sequences))
        shape = (one.size[0] > 1, one.size[1] // one.size[0])
        first = self._settings.compiles and shape not in self._compiled
        limit_s = self._settings.pass_timeout_s
        one.watched = Watched(max(limit_s, _FIRST_OF_A_SHAPE_S) if first else limit_s)
        try:
            one.pending = self._forward.launch(sequences)
        except Exception as error:  # noqa: BLE001 - a model may raise any error, and its callers must be answered
            self._fail(one, error)
            return False
        finally:
            self._compiled.add(shape)
        return True

    def _read(self, one: _Pass) -> None:
        """Wait for a launched pass, and deliver its results or its failure."""
        assert one.pending is not None  # noqa: S101 - the pass was launched
        try:
            results = one.pending.read()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(one, error)
            return
        with self._changed:
            self._budget.passed(time.monotonic())
        self._finish(one, results)
        if self._log.tick(time.monotonic()):
            return_free_memory()

    def _fail(self, one: _Pass, error: Exception) -> None:
        """Have each half of a failed pass run, halved again on each failure, down to the single sequence that fails."""
        if is_out_of_memory(error):
            logger.warning("memory ran out for %d sequences of %d tokens", *one.size)
            with self._changed:
                self._counters.memory_errors += 1
                self._budget.shrink(one.size[1], time.monotonic())
        else:
            logger.error("the model failed on %d sequences of %d tokens", *one.size, exc_info=error)
        # The traceback keeps the tensors alive for which memory ran out.
        failure = error.with_traceback(None)
        if is_lost_device(failure):
            if self._refusal is None:
                logger.critical("the device is lost: %s", failure)
                self._end(f"the GPU failed ({reason_of(failure)})")
            else:
                self._call(self._refuse, [ticket for ticket, _ in one.members], self._refusal)
            return
        self._forward.free_memory()
        if len(one.members) == 1:
            self._finish(one, [_fault_of(failure)])
            return
        middle = len(one.members) // 2
        with self._changed:
            self._running.remove(one)
            self._halves.extendleft((one.members[middle:], one.members[:middle]))
            refusal = self._refusal
            self._changed.notify()
        if refusal is not None:
            self._call(self._refuse, [ticket for ticket, _ in one.members], refusal)

    def _end(self, fault: str) -> None:
        """Refuse all requests, then end the process: after a lost device or thread each further call would fail too."""
        self.abandon(BusyError(f"{fault}, so the model's process ends; send the request again in some seconds"))
        self._call(self._on_lost_device)

    def _give_up(self, refusal: BusyError) -> None:
        with self._changed:
            # Callers receive the first reason for which the engine stopped.
            self._refusal = self._refusal or refusal
            tickets = [*self._queue.drain(), *(ticket for members in self._halves for ticket, _ in members)]
            self._halves.clear()
            self._changed.notify()
        self._call(self._refuse, tickets, refusal)

    def _finish(self, one: _Pass, results: Sequence[Floats | HandlerError]) -> None:
        """Count a pass, and have the event loop deliver its results: one output or error for each member."""
        with self._changed:
            now = time.monotonic()
            # The device begins a pass when the pass before it has ended.
            seconds = now - max(one.started, self._last_read)
            self._last_read = now
            self._count(one, seconds)
            self._call(self._deliver, one, results, seconds)
            self._running.remove(one)
            self._changed.notify()

    def _count(self, one: _Pass, seconds: float) -> None:
        counters = self._counters
        counters.passes += 1
        counters.sequences += len(one.members)
        counters.tokens += sum(len(sequence.encoded.ids) for _, sequence in one.members)
        counters.padded_tokens += one.size[1]
        counters.queue_s += sum(one.started - ticket.since for ticket, _ in one.members)
        counters.forward_s += seconds

    def _deliver(self, one: _Pass, results: Sequence[Floats | HandlerError], seconds: float) -> None:
        """Give a pass's results to their requests, in the event loop, and finish the requests that are complete."""
        for ticket in dict.fromkeys(ticket for ticket, _ in one.members):
            assert isinstance(ticket, _Request)  # noqa: S101 - what `run` queues
            ticket.outcome.batches.append(one.size)
            ticket.outcome.queue_s = one.started - ticket.since
            ticket.outcome.forward_s += seconds
        for (ticket, sequence), result in zip(one.members, results, strict=True):
            assert isinstance(ticket, _Request)  # noqa: S101 - as above
            if isinstance(result, HandlerError):
                self._refuse([ticket], result)
                continue
            ticket.results[sequence.index] = result
            ticket.missing -= 1
            if not ticket.missing and not ticket.done.done():
                _finish(ticket)

    def _refuse(self, tickets: Sequence[Ticket[TokenSequence]], refusal: HandlerError) -> None:
        for ticket in tickets:
            if isinstance(ticket, _Request) and not ticket.done.done():
                ticket.done.set_exception(refusal)

    def _waited_too_long(self) -> BusyError:
        return BusyError(
            f"the request waited longer than {self._settings.max_queue_time_s:g} s; send it again later, or fewer "
            "at once"
        )

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Run a function in the event loop, unless the loop has ended with the worker."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _finish(request: _Request) -> None:
    outputs = [result for result in request.results if result is not None]
    if all(np.isfinite(output).all() for output in outputs):
        request.outcome.outputs = outputs
        request.done.set_result(request.outcome)
    else:
        request.done.set_exception(ModelError("the model's output is not a finite number; load it with dtype fp32"))


def _fault_of(error: Exception) -> HandlerError:
    if is_out_of_memory(error):
        return MemoryExhaustedError("memory ran out for a single text; shorten it, or give the model more memory")
    return ModelError(f"the model failed: {reason_of(error)}")
