"""Messages between a proxy process and its engine process: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cohost.handler.cohost_frames import (
    FrameError,
    Outcome,
    TokenSequence,
    check_peer,
    outcome_of,
    pack,
    packed_outcome,
    packed_sequences,
    read,
    receive,
    sequences_of,
)
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

MALFORMED = {
    "no JSON": (struct.pack("!II", 3, 0) + b"{a}", "no JSON"),
    "not UTF-8": (struct.pack("!II", 2, 0) + b"\xff\xfe", "no JSON"),
    "no object": (struct.pack("!II", 2, 0) + b"[]", "no JSON object"),
    "too long": (struct.pack("!II", 2**30, 1), f"a message of {2**30 + 1} bytes is longer"),
    "most that two lengths can say": (struct.pack("!II", 2**32 - 1, 2**32 - 1), "is longer"),
}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(10)
        yield one, other


def sequence(*ids: int, segments: bool = False, want: Want = Want.LOGITS, length: int = 0, index: int = 0) -> Any:
    """A sequence of these tokens; its segments count up from zero."""
    second = np.arange(len(ids), dtype=np.int32) if segments else None
    encoded = Encoded(np.asarray(ids, np.int32), second, truncated=False)
    return TokenSequence(encoded, max(length, len(ids)), want, index)


@pytest.mark.parametrize("body", [(), (b"",), (b"one", b"", b"two")])
def test_a_message_is_read_as_it_was_packed(ends: tuple[socket.socket, socket.socket], body: tuple[bytes, ...]) -> None:
    """By a thread and in the event loop, one after another on one connection."""
    head = {"op": "run", "text": "é\u0000🎉", "nested": [[1, None, True]]}
    message = pack(head, *body)
    ends[0].sendall(message + message)
    assert [receive(ends[1]), receive(ends[1])] == [(head, b"".join(body))] * 2

    async def in_the_loop() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(message)
        return await read(reader)

    assert asyncio.run(in_the_loop()) == (head, b"".join(body))


@pytest.mark.parametrize(("data", "problem"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_message_is_refused_before_memory_is_taken_for_it(
    ends: tuple[socket.socket, socket.socket], data: bytes, problem: str
) -> None:
    """A length beyond the limit is refused without waiting for its bytes."""
    ends[0].sendall(data)
    with pytest.raises(FrameError, match=problem):
        receive(ends[1])

    async def in_the_loop() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        await asyncio.wait_for(read(reader), 10)

    with pytest.raises(FrameError, match=problem):
        asyncio.run(in_the_loop())


@pytest.mark.parametrize("size", [0, 5, 12])
def test_a_connection_that_closes_within_a_message_is_no_message(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    """Nor does its reader wait for ever."""
    message = pack({"a": 1}, b"body")
    ends[0].sendall(message[:size])
    ends[0].close()
    with pytest.raises(ConnectionError, match="closed the connection"):
        receive(ends[1])


def test_the_peer_must_be_a_process_of_this_user(ends: tuple[socket.socket, socket.socket]) -> None:
    """Whoever could reach the socket as another user would read texts and answer in the model's name."""
    check_peer(ends[0], os.geteuid())
    with pytest.raises(FrameError, match=f"of user {os.geteuid()} is at the other end, not one of user"):
        check_peer(ends[0], os.geteuid() + 1)


@pytest.mark.parametrize(
    "sequences",
    [
        [],
        [sequence()],
        [sequence(7)],
        [sequence(1, 2, 3, segments=True)],
        [sequence(5, 6, length=512, want=Want.CLS)],
        [sequence(index + 1, 2**31 - 1, segments=index % 2 == 1, want=want) for index, want in enumerate(Want)],
    ],
    ids=["none", "of no tokens", "one", "with segments", "padded", "all wants, some with segments"],
)
def test_sequences_arrive_as_they_left(sequences: list[TokenSequence]) -> None:
    """With their places in the request, and equal ones have equal keys on the other side too."""
    heads, body = packed_sequences(sequences)
    arrived = sequences_of(heads, b"".join(body))
    assert [(one.key, one.length, one.want) for one in arrived] == [(o.key, o.length, o.want) for o in sequences]
    assert [one.index for one in arrived] == list(range(len(sequences)))
    for one, other in zip(arrived, sequences, strict=True):
        assert (one.encoded.segments is None) == (other.encoded.segments is None)
        assert one.encoded.ids.dtype == np.int32


def test_a_body_that_is_shorter_than_its_head_says_is_refused() -> None:
    """Token ids are never made up."""
    heads, body = packed_sequences([sequence(1, 2, 3)])
    with pytest.raises(ValueError, match="buffer"):
        sequences_of(heads, b"".join(body)[:-4])


def test_what_an_output_depends_on_is_in_the_key() -> None:
    """Two sequences with equal keys are computed once, so nothing may be missing."""
    one = sequence(1, 2)
    others = [
        sequence(1, 3),
        sequence(1, 2, 2),
        sequence(1, 2, segments=True),
        sequence(1, 2, want=Want.MEAN),
        sequence(1, 2, length=9),
    ]
    assert one.key not in [other.key for other in others]
    assert len({other.key for other in others}) == len(others)
    assert one.key == sequence(1, 2, index=4).key


@pytest.mark.parametrize("shapes", [[], [(3,)], [(0,)], [(3,), (5, 4), (1, 1)]])
def test_an_outcome_arrives_as_it_left(shapes: list[tuple[int, ...]]) -> None:
    """Vectors of any shapes bit for bit, batches, and times."""
    outputs = [np.random.default_rng(7).random(shape, np.float32) for shape in shapes]
    outcome = Outcome(outputs, [(2, 64), (1, 8)], 0.25, 0.5)
    head, body = packed_outcome(outcome)
    left, right = socket.socketpair()
    with left, right:
        left.sendall(pack(head, *body))
        arrived = outcome_of(*receive(right))
    assert (arrived.batches, arrived.queue_s, arrived.forward_s) == ([(2, 64), (1, 8)], 0.25, 0.5)
    for one, other in zip(arrived.outputs, outputs, strict=True):
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def test_an_output_that_is_a_view_is_packed_in_its_own_order() -> None:
    """A row of a larger array, or a transposed one, is not packed with what lies beside it."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    head, body = packed_outcome(Outcome([array[:, 1], array.T]))
    arrived = outcome_of(head, b"".join(body))
    assert [one.tolist() for one in arrived.outputs] == [array[:, 1].tolist(), array.T.tolist()]
