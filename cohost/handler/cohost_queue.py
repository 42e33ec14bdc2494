"""The queue: first come, first served by request, with a fair share for each.

A request's sequences need not run together. The next batch always holds the oldest request's next sequence; a request
with some sequences in a batch and more waiting goes to the back. So a request of a thousand sequences delays others by
at most one batch, and single texts are answered in the order of their arrival.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

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
    """A request's place in the queue: its waiting sequences, and the time of its arrival (queue clock, seconds)."""

    waiting: deque[Item] = field(default_factory=deque)
    since: float = 0.0


class FairQueue(Generic[Item]):
    """A queue of at most `capacity` sequences. Not thread-safe: its owner locks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._tickets: deque[Ticket[Item]] = deque()

    def __len__(self) -> int:
        """Return the number of waiting sequences."""
        return self._size

    def add(self, ticket: Ticket[Item], items: Iterable[Item], now: float) -> None:
        """Append a request. Its sequences are taken by length, so that its own batches have little padding.

        Raises:
            BusyError: not all of them fit; none is queued then.
        """
        ordered = sorted(items, key=lambda item: item.length)
        if self._size + len(ordered) > self._capacity:
            raise BusyError(
                f"the queue is full: {self._size} of {self._capacity} sequences wait, and this request has "
                f"{len(ordered)}; send it again later"
            )
        ticket.waiting = deque(ordered)
        ticket.since = now
        self._size += len(ordered)
        if ordered:
            self._tickets.append(ticket)

    def take(self, most: int, choose: Callable[[Sequence[Item]], Iterable[int]]) -> list[tuple[Ticket[Item], Item]]:
        """Remove and return the next batch.

        `choose` receives up to `most` candidates in the order of the queue, and returns the indices of those that run
        together; it must include the first.
        """
        candidates = self._candidates(most)
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
        """Remove and return the requests that came before a time and still have waiting sequences."""
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

    def _candidates(self, most: int) -> list[tuple[Ticket[Item], Item]]:
        """Return one sequence of each request in turn, then a second of each, and so on."""
        candidates: list[tuple[Ticket[Item], Item]] = []
        round_of = list(islice(self._tickets, most))
        while round_of and len(candidates) < most:
            candidates += [(ticket, ticket.waiting.popleft()) for ticket in round_of[: most - len(candidates)]]
            round_of = [ticket for ticket in round_of if ticket.waiting]
        return candidates

    def _move_back(self, served: set[Ticket[Item]], most: int) -> None:
        """Move served requests with waiting sequences to the back; only the first `most` can have been served."""
        first = [self._tickets.popleft() for _ in range(min(most, len(self._tickets)))]
        self._tickets.extendleft(ticket for ticket in reversed(first) if ticket not in served)
        self._tickets.extend(ticket for ticket in first if ticket in served and ticket.waiting)
