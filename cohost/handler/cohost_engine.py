"""The engine: one thread that runs the model, takes the next batch as soon as the last one is done, and answers it.

Requests come from the event loop, and results return to it batch by batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .cohost_batches import BatchLimits, BatchLog, Counters, in_order, together
from .cohost_errors import BusyError, HandlerError, MemoryExhaustedError, ModelError, reason_of
from .cohost_memory import TokenBudget, is_lost_device, is_out_of_memory, return_free_memory
from .cohost_queue import FairQueue, Ticket
from .cohost_watchdog import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cohost_forward import Forward, TokenSequence
    from .cohost_tasks import Floats

    Member = tuple[Ticket[TokenSequence], TokenSequence]

logger = logging.getLogger(__name__)

_CANDIDATES = 4
# A compiler needs seconds to minutes per shape; an hour would be a hang.
_FIRST_OF_A_SHAPE_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """The limits of an engine.

    `max_batch_tokens` includes padding, `floor_tokens` is the model's limit, `pass_cost` in tokens.

    With `compiles`, the first pass of each shape may take minutes, unless its shape (more than one sequence, tokens per
    sequence) is in `compiled`.
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
    """The results of a request's sequences: outputs in their order, and the batches (sequences, tokens with padding).

    `queue_s` is the wait until the last sequence was taken, `forward_s` the time of all those batches.
    """

    outputs: list[Floats]
    batches: list[tuple[int, int]] = field(default_factory=list)
    queue_s: float = 0.0
    forward_s: float = 0.0


@dataclass(eq=False, slots=True)
class _Request(Ticket["TokenSequence"]):
    """A ticket with the results so far; only the event loop changes it, except for `waiting`."""

    results: list[Floats | None] = field(default_factory=list)
    missing: int = 0
    outcome: Outcome = field(default_factory=lambda: Outcome([]))
    done: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass with its members: a result per member, or an error."""

    members: Sequence[Member]
    results: Sequence[Floats | HandlerError]
    size: tuple[int, int]
    started: float
    seconds: float


class Engine:
    """The engine: runs sequences through `forward`, and calls `on_lost_device` if only a new process can help."""

    def __init__(
        self, forward: Forward, settings: EngineSettings, counters: Counters, on_lost_device: Callable[[], None]
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
        self.watched: Watched | None = None
        self._compiled = set(settings.compiled)
        self._members: Sequence[Member] = ()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="cohost-engine", daemon=True)
        self._thread.start()

    async def run(self, sequences: Sequence[TokenSequence]) -> Outcome:
        """Queue the sequences of one request and wait for all of them; on cancellation, remove them from the queue.

        Raises:
            BusyError: the queue is full, the request waited too long, or the process ends.
            MemoryExhaustedError: memory ran out for one sequence alone.
            ModelError: the model failed on one of them, or returned a number that is not finite.
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
        """End the thread after its current batch; waiting requests are refused."""
        self._give_up(BusyError("the model's process is shutting down; send the request again in some seconds"))
        self._thread.join()

    def expire(self) -> None:
        """Refuse the requests that have waited too long.

        Callable from any thread, because the engine itself checks only between passes.
        """
        with self._changed:
            late = self._queue.expire(time.monotonic() - self._settings.max_queue_time_s)
        if late:
            self._call(self._refuse, late, self._waited_too_long())

    def abandon(self, refusal: BusyError) -> None:
        """Refuse all requests, including those in the current pass, and accept no more; called from another thread."""
        self._call(self._refuse, [ticket for ticket, _ in self._members], refusal)
        self._give_up(refusal)

    def _run(self) -> None:
        try:
            self._serve_all()
        except Exception:
            # Without this thread every caller would wait for ever.
            logger.exception("the thread that runs the model has failed")
            self._end("the thread that runs the model failed")

    def _serve_all(self) -> None:
        while True:
            with self._changed:
                while not len(self._queue) and self._refusal is None:
                    self._changed.wait()
                if self._refusal is not None:
                    return
                self.expire()
                self._members = members = self._take() if len(self._queue) else []
            if members:
                self._serve(members)
                if self._log.tick(time.monotonic()):
                    return_free_memory()

    def _take(self) -> list[Member]:
        limits = BatchLimits(self._budget.tokens, self._settings.max_batch_sequences, self._settings.pass_cost)
        return self._queue.take(_CANDIDATES * limits.sequences, lambda candidates: self._choose(candidates, limits))

    def _choose(self, candidates: Sequence[TokenSequence], limits: BatchLimits) -> list[int]:
        """Return the batch of the first candidate, from those that run in the same way as it."""
        packs = self._forward.packs(candidates[0])
        places = [index for index, one in enumerate(candidates) if self._forward.packs(one) is packs]
        form = in_order if packs else together
        lengths = [self._forward.length_of(candidates[place]) for place in places]
        return [places[index] for index in form(lengths, limits)]

    def _serve(self, members: Sequence[Member]) -> None:
        """Run one pass; if it fails, run its two halves, and so on down to the sequence that fails alone."""
        sequences = [sequence for _, sequence in members]
        size = (len(sequences), self._forward.tokens_of(sequences))
        started = time.monotonic()
        results = self._attempt(sequences, size)
        if not isinstance(results, Exception):
            self._budget.passed()
            self._deliver_later(_Pass(members, results, size, started, time.monotonic() - started))
        elif is_lost_device(results):
            logger.critical("the device is lost: %s", results)
            self._end(f"the GPU failed ({reason_of(results)})")
        elif len(members) == 1:
            self._deliver_later(_Pass(members, [_fault_of(results)], size, started, time.monotonic() - started))
        else:
            middle = len(members) // 2
            self._serve(members[:middle])
            if self._refusal is None:
                self._serve(members[middle:])

    def _attempt(self, sequences: Sequence[TokenSequence], size: tuple[int, int]) -> list[Floats] | Exception:
        """Return the outputs, or the exception that the model raised."""
        try:
            return self._watched_pass(sequences, size)
        except Exception as error:
            # A model may raise any exception, and its callers must be answered.
            if is_out_of_memory(error):
                logger.warning("memory ran out for %d sequences of %d tokens", *size)
                self._counters.memory_errors += 1
                self._budget.shrink(size[1])
            else:
                logger.exception("the model failed on %d sequences of %d tokens", *size)
            # The traceback keeps the tensors alive for which memory ran out.
            failure = error.with_traceback(None)
        self._forward.free_memory()
        return failure

    def _watched_pass(self, sequences: Sequence[TokenSequence], size: tuple[int, int]) -> list[Floats]:
        """Run one pass in view of the watchdog; its time limit is longer if the shape may have to be compiled."""
        shape = (size[0] > 1, size[1] // size[0])
        first = self._settings.compiles and shape not in self._compiled
        limit_s = self._settings.pass_timeout_s
        self.watched = Watched(max(limit_s, _FIRST_OF_A_SHAPE_S) if first else limit_s)
        try:
            return self._forward(sequences)
        finally:
            self.watched = None
            self._compiled.add(shape)

    def _end(self, fault: str) -> None:
        """Answer all callers, then end the process: after such a fault each further call would fail too."""
        self.abandon(BusyError(f"{fault}, so the model's process ends; send the request again in some seconds"))
        self._call(self._on_lost_device)

    def _give_up(self, refusal: BusyError) -> None:
        with self._changed:
            # The first reason is the one that callers receive.
            self._refusal = self._refusal or refusal
            tickets = self._queue.drain()
            self._changed.notify()
        self._call(self._refuse, tickets, refusal)

    def _deliver_later(self, one: _Pass) -> None:
        counters, sequences = self._counters, [sequence for _, sequence in one.members]
        counters.passes += 1
        counters.sequences += len(sequences)
        counters.tokens += sum(len(sequence.encoded.ids) for sequence in sequences)
        counters.padded_tokens += one.size[1]
        counters.queue_s += sum(one.started - ticket.since for ticket, _ in one.members)
        counters.forward_s += one.seconds
        self._call(self._deliver, one)

    def _deliver(self, one: _Pass) -> None:
        """Pass the results to their requests, in the event loop, and finish the requests that are complete."""
        for ticket in dict.fromkeys(ticket for ticket, _ in one.members):
            assert isinstance(ticket, _Request)  # noqa: S101 - what `run` queues
            ticket.outcome.batches.append(one.size)
            ticket.outcome.queue_s = one.started - ticket.since
            ticket.outcome.forward_s += one.seconds
        for (ticket, sequence), result in zip(one.members, one.results, strict=True):
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
