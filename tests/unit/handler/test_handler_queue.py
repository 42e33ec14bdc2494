"""The queue's order: order of arrival, a fair share for each request, and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cohost.handler.cohost_batches import FairQueue, Ticket
from cohost.handler.cohost_errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 8


@dataclass
class Item:
    """A sequence of a length, by name."""

    name: str
    length: int = 10


def add(queue: FairQueue[Item], name: str, number: int = 1, length: int = 10, now: float = 0.0) -> Ticket[Item]:
    """Queue a request of this number of sequences."""
    ticket: Ticket[Item] = Ticket()
    queue.add(ticket, [Item(name, length) for _ in range(number)], now)
    return ticket


def first_two(candidates: Sequence[Item]) -> list[int]:
    """A batch of two, in the order of claim."""
    return list(range(min(2, len(candidates))))


def names(queue: FairQueue[Item], choose: object = first_two) -> str:
    """The next batch."""
    return "".join(item.name for _, item in queue.take(MOST, choose))  # type: ignore[arg-type] # as `first_two`


def test_single_texts_leave_in_the_order_in_which_they_came() -> None:
    """Requests of one text each are served in the order of their arrival."""
    queue: FairQueue[Item] = FairQueue(10)
    for name in "abcd":
        add(queue, name)
    assert [names(queue), names(queue)] == ["ab", "cd"]
    assert len(queue) == 0


def test_a_huge_request_holds_a_tiny_one_up_for_one_batch_at_most() -> None:
    """A text behind 800 sequences is first in the second next batch at the latest."""
    queue: FairQueue[Item] = FairQueue(1000)
    add(queue, "B", 800)
    assert names(queue) == "BB"
    add(queue, "t", length=500)
    # Batches of like lengths only: the tiny request's text is not like the others.
    alike = [names(queue, lambda c: [i for i, one in enumerate(c[:2]) if one.length == c[0].length]) for _ in range(2)]
    assert alike[1] == "t"


def test_requests_with_many_sequences_share_each_batch() -> None:
    """Two large requests get half of each batch, because sequences are taken in turn."""
    queue: FairQueue[Item] = FairQueue(100)
    add(queue, "a", 4)
    add(queue, "b", 4)
    assert [names(queue) for _ in range(4)] == ["ab", "ab", "ab", "ab"]


def test_what_was_not_chosen_keeps_its_place() -> None:
    """A sequence that was left out of a batch keeps its place before later ones."""
    queue: FairQueue[Item] = FairQueue(100)
    for name in "abc":
        add(queue, name)
    assert names(queue, lambda _: [0, 2]) == "ac"
    add(queue, "d")
    assert names(queue) == "bd"


def test_sequences_of_one_request_are_taken_by_length() -> None:
    """Sequences of one request are taken by length, the shortest first, to save padding."""
    queue: FairQueue[Item] = FairQueue(100)
    ticket: Ticket[Item] = Ticket()
    queue.add(ticket, [Item("long", 90), Item("short", 5), Item("middle", 40)], 0.0)
    assert names(queue, lambda c: range(len(c))) == "shortmiddlelong"


def test_a_full_queue_refuses_a_request_whole() -> None:
    """A request that does not fit leaves nothing behind in the queue."""
    queue: FairQueue[Item] = FairQueue(3)
    add(queue, "a", 2)
    with pytest.raises(BusyError, match="2 of 3 sequences wait, and this request has 2"):
        add(queue, "b", 2)
    assert len(queue) == 2


def test_a_dropped_request_takes_nothing_of_the_device_any_more() -> None:
    """A dropped request leaves the queue, and dropping it again has no effect."""
    queue: FairQueue[Item] = FairQueue(100)
    ticket = add(queue, "a", 3)
    add(queue, "b")
    assert names(queue) == "ab"
    assert [queue.drop(ticket), queue.drop(ticket)] == [2, 0]
    assert len(queue) == 0


def test_requests_that_waited_too_long_are_taken_out_even_when_partly_served() -> None:
    """`expire` returns requests older than a time that still have waiting sequences."""
    queue: FairQueue[Item] = FairQueue(100)
    late = add(queue, "a", 3, now=1.0)
    add(queue, "b", now=5.0)
    assert names(queue) == "ab"
    assert queue.expire(2.0) == [late]
    assert len(queue) == 0


def test_draining_returns_everybody() -> None:
    """`drain` empties the queue and returns all waiting requests."""
    queue: FairQueue[Item] = FairQueue(100)
    tickets = [add(queue, "a", 2), add(queue, "b")]
    assert queue.drain() == tickets
    assert len(queue) == 0
