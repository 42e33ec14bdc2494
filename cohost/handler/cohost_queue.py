"""Who waits, and who is next: first come, first served by request, with a fair share for each.

A request's sequences need not run together. The next batch always holds the oldest request's next sequence; a request
that got some of its sequences into a batch and has more goes to the back. So a request of a thousand sequences holds
nobody up for longer than a batch, and single texts are answered in the order in which they came.
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
    """Something with a length in tokens, padding included where the caller asked for it."""

    @property
    def length(self) -> int: ...  # noqa: D102 - said above


Item = TypeVar("Item", bound=Sized)


@dataclass(eq=False, slots=True)
class Ticket(Generic[Item]):
    """A request's place: the sequences that still wait, and since when (in the queue's clock, seconds)."""

    waiting: deque[Item] = field(default_factory=deque)
    since: float = 0.0


class FairQueue(Generic[Item]):
    """Holds no more than `capacity` sequences. Not safe for threads: its owner locks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._tickets: deque[Ticket[Item]] = deque()

    def __len__(self) -> int:
        """How many sequences wait."""
        return self._size

    def add(self, ticket: Ticket[Item], items: Iterable[Item], now: float) -> None:
        """Puts a request at the end. Its sequences are taken by length, so that its own batches pad little.

        Raises:
            BusyError: they do not all fit in; none is queued then.
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
        """The next batch. `choose` is given up to `most` candidates, in the order of their claim, and
        says by index which of them run together; it must choose the first.
        """
        candidates = self._candidates(most)
        chosen = set(choose([item for _, item in candidates]))
        taken = [candidates[index] for index in sorted(chosen)]
        # Backwards, so that what was not chosen lies as it did before.
        for index in range(len(candidates) - 1, -1, -1):
            if index not in chosen:
                ticket, item = candidates[index]
                ticket.waiting.appendleft(item)
        self._size -= len(taken)
        self._move_back({ticket for ticket, _ in taken}, most)
        return taken

    def drop(self, ticket: Ticket[Item]) -> int:
        """Takes a request out, whatever is left of it; how many sequences that were."""
        dropped = len(ticket.waiting)
        if dropped:
            ticket.waiting.clear()
            self._tickets.remove(ticket)
            self._size -= dropped
        return dropped

    def expire(self, before: float) -> list[Ticket[Item]]:
        """Takes out requests that came before a time and have sequences waiting still."""
        late = [ticket for ticket in self._tickets if ticket.since < before]
        for ticket in late:
            self.drop(ticket)
        return late

    def drain(self) -> list[Ticket[Item]]:
        """Takes out everything."""
        tickets = list(self._tickets)
        for ticket in tickets:
            ticket.waiting.clear()
        self._tickets.clear()
        self._size = 0
        return tickets

    def _candidates(self, most: int) -> list[tuple[Ticket[Item], Item]]:
        """One sequence of each request in turn, then a second of each, and so on."""
        candidates: list[tuple[Ticket[Item], Item]] = []
        round_of = list(islice(self._tickets, most))
        while round_of and len(candidates) < most:
            candidates += [(ticket, ticket.waiting.popleft()) for ticket in round_of[: most - len(candidates)]]
            round_of = [ticket for ticket in round_of if ticket.waiting]
        return candidates

    def _move_back(self, served: set[Ticket[Item]], most: int) -> None:
        """Only the first `most` requests can have been served."""
        first = [self._tickets.popleft() for _ in range(min(most, len(self._tickets)))]
        self._tickets.extendleft(ticket for ticket in reversed(first) if ticket not in served)
        self._tickets.extend(ticket for ticket in first if ticket in served and ticket.waiting)
