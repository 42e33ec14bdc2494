"""The queue and its batches: the order of requests, and the choice of sequences that share a forward pass.

Requests are served in the order of arrival, but a long request gives way to others after each batch. The sequences of
one request may run in different batches. The next batch always contains a sequence of the request at the front of the
queue. A request that had sequences in a batch and has more waiting moves to the back. So a request of a thousand
sequences delays other requests by at most one batch, and requests of one text are answered in the order of their
arrival.

Sequences of different lengths share a forward pass if the padding costs less than a separate pass. The cost of a pass
is modelled as a fixed part (launches, Python) plus a part proportional to its padded tokens. The fixed part, in tokens,
is `pass_cost`; it is measured when the model loads. The module also counts all passes and sequences of a worker
process, and regularly logs the counts since the last log line.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate, islice, pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .cohost_errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Sized(Protocol):
    """An item with a length in tokens, including the padding that the caller requested."""

    @property
    def length(self) -> int: ...  # noqa: D102 - said above


Item = TypeVar("Item", bound=Sized)


@dataclass(eq=False, slots=True)
class Ticket(Generic[Item]):
    """A request's place in the queue: its waiting sequences, and `since` and `turn` in seconds of the monotonic clock.

    `since` is the time of arrival. `turn` is the end of the last pass that ran some of the request's sequences; until
    the request's first pass has ended, `turn` equals `since`.
    """

    waiting: deque[Item] = field(default_factory=deque)
    since: float = 0.0
    turn: float = 0.0


class FairQueue(Generic[Item]):
    """The queue of one model's requests, for at most `capacity` sequences; not thread-safe, so the engine locks it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._tickets: deque[Ticket[Item]] = deque()

    def __len__(self) -> int:
        """Return the number of waiting sequences."""
        return self._size

    def add(self, ticket: Ticket[Item], items: Iterable[Item], now: float) -> None:
        """Append a request. The request's sequences run in order of length, so that batches need little padding.

        Raises:
            BusyError: not all sequences fit into the queue; none of the request's sequences is queued then.
        """
        ordered = sorted(items, key=lambda item: item.length)
        if self._size + len(ordered) > self._capacity:
            raise BusyError(
                f"the queue is full: {self._size} of {self._capacity} sequences wait, and this request has "
                f"{len(ordered)}; send it again later"
            )
        ticket.waiting = deque(ordered)
        ticket.since = ticket.turn = now
        self._size += len(ordered)
        if ordered:
            self._tickets.append(ticket)

    @property
    def since(self) -> float:
        """Return the arrival of the request at the front (monotonic clock, seconds); infinity for an empty queue."""
        return self._tickets[0].since if self._tickets else inf

    @property
    def turn(self) -> float:
        """Return the `turn` (see `Ticket`) of the request at the front; infinity for an empty queue."""
        return self._tickets[0].turn if self._tickets else inf

    def take(
        self,
        most: int,
        choose: Callable[[Sequence[Item]], Iterable[int]],
        *,
        requests: int | None = None,
    ) -> list[tuple[Ticket[Item], Item]]:
        """Remove and return the next batch.

        Args:
            most: the number of candidates.
            choose: receives up to `most` candidates in the order of the queue, and returns the indices of the
                candidates that run together; the index of the first candidate must be among them.
            requests: the number of requests to take the candidates from; None for as many as there are.
        """
        candidates = self._candidates(most, most if requests is None else min(most, requests))
        chosen = set(choose([item for _, item in candidates]))
        taken = [candidates[index] for index in sorted(chosen)]
        # Backwards, so that the rest returns to its former order.
        for index in range(len(candidates) - 1, -1, -1):
            if index not in chosen:
                ticket, item = candidates[index]
                ticket.waiting.appendleft(item)
        self._size -= len(taken)
        self._move_back({ticket for ticket, _ in taken}, most)
        return taken

    def drop(self, ticket: Ticket[Item]) -> int:
        """Remove a request, and return the number of its sequences that still waited."""
        dropped = len(ticket.waiting)
        if dropped:
            ticket.waiting.clear()
            self._tickets.remove(ticket)
            self._size -= dropped
        return dropped

    def expire(self, before: float) -> list[Ticket[Item]]:
        """Remove and return waiting requests that arrived before `before` (monotonic clock, seconds)."""
        late = [ticket for ticket in self._tickets if ticket.since < before]
        for ticket in late:
            self.drop(ticket)
        return late

    def drain(self) -> list[Ticket[Item]]:
        """Remove and return all requests."""
        tickets = list(self._tickets)
        for ticket in tickets:
            ticket.waiting.clear()
        self._tickets.clear()
        self._size = 0
        return tickets

    def _candidates(self, most: int, requests: int) -> list[tuple[Ticket[Item], Item]]:
        """Take up to `most` sequences out of the requests: the first of each request, then the second of each, etc."""
        candidates: list[tuple[Ticket[Item], Item]] = []
        round_of = list(islice(self._tickets, requests))
        while round_of and len(candidates) < most:
            candidates += [(ticket, ticket.waiting.popleft()) for ticket in round_of[: most - len(candidates)]]
            round_of = [ticket for ticket in round_of if ticket.waiting]
        return candidates

    def _move_back(self, served: set[Ticket[Item]], most: int) -> None:
        """Move `served` requests that have waiting sequences to the back; they are among the first `most` requests."""
        first = [self._tickets.popleft() for _ in range(min(most, len(self._tickets)))]
        self._tickets.extendleft(ticket for ticket in reversed(first) if ticket not in served)
        self._tickets.extend(ticket for ticket in first if ticket in served and ticket.waiting)


# Lengths are compared in steps of this many tokens: fewer lengths are faster to compare, and finer steps gain nothing.
_STEP = 8


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The largest batch, in padded tokens and in sequences, and the fixed cost of a pass in tokens."""

    tokens: int
    sequences: int
    pass_cost: int

    def sequences_of(self, length: int) -> int:
        """Return the number of sequences of `length` tokens that a batch holds; at least 1, since none can be split."""
        return max(1, min(self.sequences, self.tokens // length))


_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3600.0
_CALM_PAUSES = 4


class TokenBudget:
    """The padded tokens that a batch may have: halved when GPU memory or RAM runs out, doubled again after a pause.

    Each failure doubles the pause, up to an hour. The free memory changes as other models on the device use it, so a
    larger batch is tried again, but a batch that fails must run a second time. The budget never falls below `floor`,
    the model's limit in tokens, because a sequence cannot be split. Times are in seconds.
    """

    def __init__(self, ceiling: int, floor: int) -> None:
        self.tokens = max(ceiling, floor)
        self._ceiling = self.tokens
        self._floor = floor
        self._pause_s = 0.0
        self._failed_at = 0.0
        self._grow_at = 0.0

    def shrink(self, failed_tokens: int, now: float) -> None:
        """Record a batch for which memory ran out."""
        self.tokens = max(self._floor, min(self.tokens, failed_tokens // 2))
        if now >= self._grow_at:  # else this batch is a part of the same failure
            calm = now - self._failed_at > _CALM_PAUSES * self._pause_s
            self._pause_s = _FIRST_PAUSE_S if calm else min(_LONGEST_PAUSE_S, 2 * self._pause_s)
        self._failed_at, self._grow_at = now, now + self._pause_s

    def passed(self, now: float) -> None:
        """Record a batch that succeeded."""
        if self.tokens < self._ceiling and now >= self._grow_at:
            self.tokens = min(self._ceiling, 2 * self.tokens)
            # A batch of this size shows within a moment whether it fits.
            self._grow_at = now


def together(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """Return the batch that contains the first sequence, as indices into `lengths` (in tokens, in queue order).

    All lengths are split into ranges that minimise the cost of all passes together. The batch takes sequences of the
    range that contains the first sequence; if not all fit, those earlier in the queue.
    """
    low, high = _range_of(lengths[0], _cheapest_ranges([_stepped(length) for length in lengths], limits))
    batch: list[int] = []
    longest = 0
    for index, length in enumerate(lengths):
        if low < _stepped(length) <= high:
            longest_with = max(longest, length)
            if batch and len(batch) >= limits.sequences_of(longest_with):
                continue
            batch.append(index)
            longest = longest_with
    return batch


def in_order(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """Return the next batch for passes without padding, as indices: the sequences that fit, in queue order."""
    batch: list[int] = []
    tokens = 0
    for index, length in enumerate(lengths[: limits.sequences]):
        if not batch or tokens + length <= limits.tokens:
            batch.append(index)
            tokens += length
    return batch


def _stepped(length: int) -> int:
    return -(-length // _STEP) * _STEP


def _range_of(length: int, bounds: Sequence[int]) -> tuple[int, int]:
    return next((low, high) for low, high in pairwise((0, *bounds)) if length <= high)


def _cheapest_ranges(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """Return the split of lengths into ranges for which all passes cost least, as ascending upper bounds in tokens.

    The split is found by dynamic programming over the distinct lengths, shortest first: the best split of all lengths
    up to L is the best split up to some shorter length, plus one range for the lengths from there to L.
    """
    counts = sorted(Counter(lengths).items())
    upper = [length for length, _ in counts]
    below = [0, *accumulate(number for _, number in counts)]
    best = [0.0] + [inf] * len(upper)
    start = [0] * (len(upper) + 1)
    for end, length in enumerate(upper, 1):
        fitting = limits.sequences_of(length)
        for begin in range(end):
            number = below[end] - below[begin]
            cost = best[begin] + -(-number // fitting) * limits.pass_cost + number * length
            if cost < best[end]:
                best[end], start[end] = cost, begin
    bounds = []
    end = len(upper)
    while end:
        bounds.append(upper[end - 1])
        end = start[end]
    return bounds[::-1]


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counters:
    """The totals of one worker process since its start; times are in seconds.

    `padded_tokens` counts tokens including padding, `tokens` the tokens of the callers' texts. `queue_s` is the sum of
    all sequences' waiting times, `forward_s` the sum of all passes' durations.
    """

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    truncated: int = 0
    passes: int = 0
    sequences: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    memory_errors: int = 0
    queue_s: float = 0.0
    forward_s: float = 0.0

    def since(self, earlier: Counters) -> Counters:
        """Return the totals minus those of an earlier copy."""
        return Counters(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})

    def copy(self) -> Counters:
        """Return a copy of the totals."""
        return Counters(**asdict(self))

    def summary(self) -> dict[str, Any]:
        """Return the totals, with averages per pass and per sequence."""
        passes, sequences = max(1, self.passes), max(1, self.sequences)
        return asdict(self) | {
            "sequences_per_pass": round(self.sequences / passes, 3),
            "padding_share": round(1 - self.tokens / max(1, self.padded_tokens), 4),
            "mean_queue_ms": round(1000 * self.queue_s / sequences, 3),
            "mean_forward_ms": round(1000 * self.forward_s / passes, 3),
        }


_MOST_VALUES = 10_000
_SERVER_FAULT = 500


class RequestLog:
    """Statistics of a model's requests in one interval, as a log line for metric filters (constructs_lib/monitoring).

    Means and percentiles are computed over the last 10,000 requests at most.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._requests = 0
        self._errors = 0
        self._tokens = 0
        self._latencies: deque[float] = deque(maxlen=_MOST_VALUES)
        self._queues: deque[float] = deque(maxlen=_MOST_VALUES)

    def add(self, *, status: int, tokens: int, latency_s: float, queue_s: float) -> None:
        """Count a request that was answered with `status`; times are in seconds."""
        self._requests += 1
        self._errors += status >= _SERVER_FAULT
        self._tokens += tokens
        self._latencies.append(latency_s)
        self._queues.append(queue_s)

    def line(self) -> str:
        """Return the statistics as a log line, times in milliseconds; at least one request must have been counted."""
        figures = [
            f"{1000 * value:.1f}"
            for values in (self._latencies, self._queues)
            for value in (sum(values) / len(values), sorted(values)[int(0.99 * len(values))])
        ]
        counts = self._requests, self._errors, self._tokens
        return " ".join(map(str, ("cohost-metrics", self._name, *counts, *figures)))


class BatchLog:
    """The log of a worker's batches: at most one line every `interval_s` seconds, and none while no batch runs."""

    def __init__(self, counters: Counters, interval_s: float, now: float) -> None:
        self._counters = counters
        self._interval_s = interval_s
        self._last = counters.copy()
        self._last_at = now

    def tick(self, now: float) -> bool:
        """Write a log line if one is due, and return True if written; called after each batch, `now` in seconds."""
        if now - self._last_at < self._interval_s:
            return False
        span = self._counters.since(self._last).summary()
        self._last, self._last_at = self._counters.copy(), now
        logger.info(
            "batches: %d passes, %.1f sequences a pass, %d tokens, %.0f%% padding, queue %.1f ms, forward %.1f ms; "
            "%d requests, %d refused, %d truncated, %d memory errors",
            span["passes"],
            span["sequences_per_pass"],
            span["tokens"],
            100 * span["padding_share"],
            span["mean_queue_ms"],
            span["mean_forward_ms"],
            span["requests"],
            span["refused"],
            span["truncated"],
            span["memory_errors"],
        )
        return True
