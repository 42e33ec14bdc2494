"""The engine of one model: queues its requests, forms its forward passes, and delivers their results.

Requests come from the event loop, and each pass's results go back to the event loop when the pass has ended. The
scheduler's threads call `take`, `launch` and `read` for each pass.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .cohost_batches import BatchLimits, BatchLog, Counters, FairQueue, Ticket, TokenBudget, in_order, together
from .cohost_errors import BusyError, HandlerError, MemoryExhaustedError, ModelError, reason_of
from .cohost_frames import Level, Outcome, TokenSequence
from .cohost_memory import is_lost_device, is_out_of_memory, return_free_memory
from .cohost_watchdog import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cohost_forward import Forward, Pending
    from .cohost_scheduler import Scheduler
    from .cohost_tasks import Floats

    Member = tuple[Ticket[TokenSequence], TokenSequence]

logger = logging.getLogger(__name__)

_CANDIDATES = 4
# A compiler needs seconds to minutes per shape; an hour would be a hang.
_FIRST_OF_A_SHAPE_S = 900.0
# A pass is expected to take as long as earlier ones did per token; each of them counts for this share of the estimate.
_NEWEST = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """The limits of an engine.

    `max_batch_tokens` includes padding, `floor_tokens` is the model's limit in tokens, and `pass_cost` is the fixed
    cost of a pass in tokens. A batch's shape is the pair (True for more than one sequence, tokens per sequence). With
    `compiles`, torch.compile may take minutes in the first pass of each shape that is not in `compiled`.
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


@dataclass(eq=False, slots=True)
class _Request(Ticket["TokenSequence"]):
    """A request in a queue and its results so far; only the event loop changes them, except for `waiting`.

    `mark` identifies the request in the journal, the file in which an engine process lists the requests that it is
    running.
    """

    mark: str = ""
    results: list[Floats | None] = field(default_factory=list)
    missing: int = 0
    outcome: Outcome = field(default_factory=lambda: Outcome([]))
    done: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False, slots=True)
class _Pass:
    """One forward pass, from the choice of its sequences to its results.

    Equal sequences of different requests run once: `sequences` has the distinct ones, and `places` has, for each
    member, the index of its sequence in `sequences`. `size` is (sequences, tokens with padding). `seconds` is the
    pass's duration, set when the pass ends.
    """

    members: Sequence[Member]
    started: float
    sequences: list[TokenSequence] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    watched: Watched | None = None
    pending: Pending | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Group equal sequences, so that each distinct sequence runs once."""
        index: dict[object, int] = {}
        for _, sequence in self.members:
            place = index.setdefault(sequence.key, len(index))
            if place == len(self.sequences):
                self.sequences.append(sequence)
            self.places.append(place)

    @property
    def marks(self) -> list[str]:
        """Return the marks (names in the journal) of the requests in this pass."""
        return list({ticket.mark: None for ticket, _ in self.members if isinstance(ticket, _Request) and ticket.mark})


class Engine:
    """The engine of one model: queues sequences, and forms the passes that the scheduler runs through `forward`.

    `on_lost_device` is called, in a thread of the scheduler, if the model can be served only by a new process. `share`
    is the model's weight when several models compete for the device.
    """

    def __init__(
        self,
        forward: Forward,
        settings: EngineSettings,
        counters: Counters,
        on_lost_device: Callable[[], None],
        scheduler: Scheduler,
        share: float = 1.0,
    ) -> None:
        self.share = share
        self._forward = forward
        self._settings = settings
        self._counters = counters
        self._on_lost_device = on_lost_device
        self._log = BatchLog(counters, settings.log_interval_s, time.monotonic())
        self._budget = TokenBudget(settings.max_batch_tokens, settings.floor_tokens)
        self._queues = {level: FairQueue[TokenSequence](settings.max_queued_sequences) for level in Level}
        self._refusal: BusyError | None = None
        self._running: list[_Pass] = []
        self._halves: deque[Sequence[Member]] = deque()
        self._last_read = 0.0
        self._token_s = 0.0
        self._compiled = set(settings.compiled)
        self._loop = asyncio.get_running_loop()
        self._changed = scheduler.changed
        self._scheduler = scheduler
        scheduler.add(self)

    async def run(
        self, sequences: Sequence[TokenSequence], *, level: Level = Level.USUAL, age_s: float = 0.0, mark: str = ""
    ) -> Outcome:
        """Queue the sequences of one request and wait for all of them; on cancellation, remove them from the queue.

        Args:
            sequences: the request's sequences; each one's `index` is the place of its output.
            level: the queue that the request waits in.
            age_s: the seconds that the request has waited already.
            mark: the request's name in the journal, the engine process's list of running requests.

        Raises:
            BusyError: the queue is full, the request waited too long, or the process ends.
            MemoryExhaustedError: memory ran out for one sequence alone.
            ModelError: the model failed on one of the sequences, or returned a number that is not finite.
        """
        request = _Request(mark=mark, results=[None] * len(sequences), missing=len(sequences))
        queue = self._queues[level]
        with self._changed:
            if self._refusal is not None:
                raise self._refusal
            queue.add(request, sequences, time.monotonic() - age_s)
            self._changed.notify_all()
        try:
            return await request.done
        finally:
            # However the wait ended, no sequence of the request may use the device any more.
            with self._changed:
                queue.drop(request)

    def stop(self) -> None:
        """Refuse the waiting requests, let the running passes end, and leave the scheduler."""
        self._give_up(BusyError("the model's process is shutting down; send the request again in some seconds"))
        self._scheduler.remove(self)

    def expire(self) -> None:
        """Refuse the requests that have waited longer than `max_queue_time_s`.

        Any thread may call `expire`. `take` calls it before each pass, and the watchdog also calls it, for times in
        which no pass begins.
        """
        limit = time.monotonic() - self._settings.max_queue_time_s
        with self._changed:
            late = [ticket for queue in self._queues.values() for ticket in queue.expire(limit)]
        if late:
            self._call(self._refuse, late, self._waited_too_long())

    def level(self, now: float) -> Level | None:
        """Return the most urgent level (see `Level`) at which the model has work; None if the model has no work.

        A request of level BULK that has waited for half of its time limit counts as USUAL.
        """
        if self._refusal is not None:
            return None
        if self._halves or len(self._queues[Level.ALONE]):
            return Level.ALONE
        if len(self._queues[Level.USUAL]) or self._is_bulk_overdue(now):
            return Level.USUAL
        return Level.BULK if len(self._queues[Level.BULK]) else None

    def waiting_since(self, level: Level) -> float:
        """Return the smallest `turn` (see `Ticket`) at the front of a level's queues; 0 for halves of a failed pass.

        So after a batch with some sequences of a long request, the rest waits behind requests that came meanwhile.
        """
        if level is Level.ALONE and self._halves:
            return 0.0
        return min(queue.turn for queue in self._queues_at(level) if len(queue))

    def take(self, level: Level) -> _Pass | None:
        """Form and return the next pass of a level; None if all requests of the level have expired."""
        if level is Level.ALONE and self._halves:
            members = self._halves.popleft()
        else:
            self.expire()
            queues = [queue for queue in self._queues_at(level) if len(queue)]
            if not queues:
                return None
            members = self._members(min(queues, key=lambda queue: queue.since), alone=level is Level.ALONE)
        # Under the lock, so that every request is in a queue or among the running passes.
        one = _Pass(members, time.monotonic())
        self._running.append(one)
        return one

    def predicted_s(self, one: _Pass) -> float:
        """Return the seconds that a pass is expected to take, estimated from the time per token of earlier passes."""
        return self._token_s * self._cost(one)

    def fail_all(self, reason: str) -> None:
        """End the process, since no thread runs passes any more; if `on_lost_device` returns, refuse all requests."""
        self._end(reason)
        with self._changed:
            tickets = [ticket for one in self._running for ticket, _ in one.members]
        self._call(self._refuse, tickets, BusyError(f"{reason}; send the request again in some seconds"))

    def _cost(self, one: _Pass) -> int:
        return self._settings.pass_cost + sum(sequence.length for sequence in one.sequences)

    def _queues_at(self, level: Level) -> list[FairQueue[TokenSequence]]:
        if level is Level.USUAL and self._is_bulk_overdue(time.monotonic()):
            return [self._queues[Level.USUAL], self._queues[Level.BULK]]
        return [self._queues[level]]

    def _is_bulk_overdue(self, now: float) -> bool:
        bulk = self._queues[Level.BULK]
        return len(bulk) > 0 and bulk.since < now - self._settings.max_queue_time_s / 2

    def _members(self, queue: FairQueue[TokenSequence], *, alone: bool) -> list[Member]:
        limits = BatchLimits(self._budget.tokens, self._settings.max_batch_sequences, self._settings.pass_cost)
        most = _CANDIDATES * limits.sequences
        return queue.take(
            most,
            lambda candidates: self._choose(candidates, limits),
            requests=1 if alone else None,
        )

    def _choose(self, candidates: Sequence[TokenSequence], limits: BatchLimits) -> list[int]:
        """Return the batch that contains the first candidate; all others run in the same way, packed or padded.

        Candidates equal to a sequence of the batch join the batch at no cost, since equal sequences run once.
        """
        packs = self._forward.packs(candidates[0])
        equal: dict[object, list[int]] = {}
        for index, one in enumerate(candidates):
            if self._forward.packs(one) is packs:
                equal.setdefault(one.key, []).append(index)
        places = list(equal.values())
        form = in_order if packs else together
        lengths = [self._forward.length_of(candidates[same[0]]) for same in places]
        return [index for place in form(lengths, limits) for index in places[place]]

    def launch(self, one: _Pass) -> bool:
        """Launch a pass, with a time limit for the watchdog; return False if the launch failed.

        The time limit is longer if torch.compile may still have to compile the pass's shape.
        """
        sequences = one.sequences
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

    def read(self, one: _Pass) -> None:
        """Wait for a launched pass, and deliver its results or its failure."""
        assert one.pending is not None  # noqa: S101 - the pass was launched
        try:
            results = one.pending.read()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(one, error)
            return
        with self._changed:
            self._budget.passed(time.monotonic())
        self._finish(one, [results[place] for place in one.places])
        if self._log.tick(time.monotonic()):
            return_free_memory()

    def _fail(self, one: _Pass, error: Exception) -> None:
        """Queue both halves of a failed pass; a half that fails is halved again, down to the sequence that fails."""
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
            self._split(one, ())
            return
        self._forward.free_memory()
        if len(one.sequences) == 1:
            self._finish(one, [_fault_of(failure)] * len(one.members))
            return
        middle = len(one.sequences) // 2
        placed = list(zip(one.members, one.places, strict=True))
        first = [member for member, place in placed if place < middle]
        self._split(one, (first, [member for member, place in placed if place >= middle]))

    def _split(self, one: _Pass, halves: Sequence[Sequence[Member]]) -> None:
        """Remove a failed pass and queue its halves; if the engine has stopped, refuse the pass's requests instead."""
        with self._changed:
            self._running.remove(one)
            one.seconds = time.monotonic() - one.started
            if self._refusal is None:
                self._halves.extendleft(reversed(halves))
            refusal = self._refusal
        if refusal is not None:
            self._call(self._refuse, [ticket for ticket, _ in one.members], refusal)

    def _end(self, fault: str) -> None:
        """End the process: without the device, or without a thread that runs passes, each further call would fail.

        If `on_lost_device` returns, all requests are refused.
        """
        self._on_lost_device()
        self._give_up(BusyError(f"{fault}, so the model's process ends; send the request again in some seconds"))

    def _give_up(self, refusal: BusyError) -> None:
        with self._changed:
            # Callers receive the first reason for which the engine stopped.
            self._refusal = self._refusal or refusal
            tickets = [ticket for queue in self._queues.values() for ticket in queue.drain()]
            tickets += [ticket for members in self._halves for ticket, _ in members]
            self._halves.clear()
            self._changed.notify_all()
        self._call(self._refuse, tickets, refusal)

    def _finish(self, one: _Pass, results: Sequence[Floats | HandlerError]) -> None:
        """Count a pass, and let the event loop deliver its results: one output or error for each member."""
        with self._changed:
            now = time.monotonic()
            # The device begins a pass when the pass before it has ended.
            seconds = now - max(one.started, self._last_read)
            self._last_read = now
            self._count(one, seconds)
            one.seconds = seconds
            for ticket, _ in one.members:
                # What is left of a request waits anew, behind the requests of other models that came meanwhile.
                ticket.turn = now
            token_s = seconds / max(1, self._cost(one))
            self._token_s = token_s if not self._token_s else self._token_s + _NEWEST * (token_s - self._token_s)
            self._call(self._deliver, one, results, seconds)
            self._running.remove(one)

    def _count(self, one: _Pass, seconds: float) -> None:
        counters = self._counters
        counters.passes += 1
        counters.sequences += len(one.members)
        counters.tokens += sum(len(sequence.encoded.ids) for sequence in one.sequences)
        counters.padded_tokens += one.size[1]
        counters.queue_s += sum(one.started - ticket.since for ticket, _ in one.members)
        counters.forward_s += seconds

    def _deliver(self, one: _Pass, results: Sequence[Floats | HandlerError], seconds: float) -> None:
        """Hand a pass's results to their requests, and finish requests that are complete; runs in the event loop."""
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
        """Run a function in the event loop, unless the loop is closed because the worker process ends."""
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
