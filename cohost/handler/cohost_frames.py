"""The messages between a model's proxy process and its engine process, over a Unix socket that one user can open.

A message is the length of its head and the length of its body, four bytes each, then the head (a JSON object), then the
body (bytes). From the proxy:

    load      {properties, rank}              first, once: load a model; `rank` is one of `Rank`
    hurry     {}                              callers wait for the model that is being loaded
    run       {id, age_s, level, sequences}   run sequences; body: their token ids and segments, int32
    encode    {id, texts, cut}                turn texts into sequences, for tokenizers that only the engine can run
    cancel    {id}                            nobody waits for this request any more
    counters  {id}                            report the model's counters

From the engine: loaded {facts, client, journal} with the tokenizer as body, failed {text, kind}, done {id, shapes,
batches, queue_s, forward_s} with the outputs as body (fp32), refused {id, status, text}, and told {id, value}.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .cohost_tasks import Want
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from .cohost_tasks import Floats

_LENGTHS: Final = struct.Struct("!II")
# A request of the most sequences has 4,096 entries in its head; a tokenizer of 250,000 words is a body of 17 MB.
_MOST_BYTES: Final = 1 << 30
_CREDENTIALS: Final = struct.Struct("3i")
_ID: Final = np.dtype(np.int32)
_FLOAT: Final = np.dtype(np.float32)


class FrameError(Exception):
    """The process at the other end sent bytes that are no message, or runs as another user."""


class Rank(enum.IntEnum):
    """The order in which an engine process loads models: after a restart, models with waiting callers come first."""

    AWAITED = 0
    AGAIN = 1
    NEW = 2


class Level(enum.IntEnum):
    """The order in which an engine process runs requests: a request waits for all requests of an earlier level.

    ALONE is for requests that were running when an engine process ended, and for halves of a failed pass. While a
    request of level ALONE runs, no other request runs.
    """

    ALONE = 0
    USUAL = 1
    BULK = 2


@dataclass(slots=True)
class TokenSequence:
    """One sequence to run; `length` is the number of its token ids, or more if the caller requested padding.

    `key` contains all values that the output depends on, so sequences with equal keys have equal outputs.
    """

    encoded: Encoded
    length: int
    want: Want
    index: int = 0
    key: tuple[int, Want, bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the key once, since a sequence may be a candidate for many passes."""
        segments = self.encoded.segments
        numbers = self.encoded.ids.tobytes(), b"" if segments is None else segments.tobytes()
        self.key = (self.length, self.want, *numbers)


@dataclass(slots=True)
class Outcome:
    """The results of one request: `outputs` in the order of its sequences, and the sizes of the batches that ran them.

    A size is (sequences, tokens with padding). `queue_s` is the time in seconds until the last sequence was taken from
    the queue, `forward_s` the time that all these batches ran.
    """

    outputs: list[Floats]
    batches: list[tuple[int, int]] = field(default_factory=list)
    queue_s: float = 0.0
    forward_s: float = 0.0


def pack(head: Mapping[str, Any], *body: bytes | memoryview) -> bytes:
    """Return a message as bytes; the body is the concatenation of its parts."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(text), sum(map(len, body))), text, *body))


async def read(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Read one message.

    Raises:
        asyncio.IncompleteReadError: the other process closed the connection.
        FrameError: the bytes are no message.
    """
    head, body = _lengths(await reader.readexactly(_LENGTHS.size))
    return _head(await reader.readexactly(head)), await reader.readexactly(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Wait for one message on a blocking socket.

    Raises:
        OSError: the other process closed the connection, or no bytes came within the socket's time limit.
        FrameError: the bytes are no message.
    """
    head, body = _lengths(_exactly(connection, _LENGTHS.size))
    return _head(_exactly(connection, head)), _exactly(connection, body)


def check_peer(connection: socket.socket, user: int) -> int:
    """Return the id of the process at the other end of a Unix socket; 0 if the operating system does not report it.

    Raises:
        FrameError: the process belongs to another user than `user`.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, owner, _ = _CREDENTIALS.unpack(found)
    if owner != user:
        raise FrameError(f"process {process} of user {owner} is at the other end, not one of user {user}")
    return int(process)


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Yield a short address for the path of a Unix socket; the address is valid inside the `with` block.

    The address of a Unix socket has at most 107 characters, and the path of the temporary folder may be longer.
    """
    if sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _lengths(data: bytes) -> tuple[int, int]:
    head, body = _LENGTHS.unpack(data)
    if head + body > _MOST_BYTES:
        raise FrameError(f"a message of {head + body} bytes is longer than {_MOST_BYTES}")
    return head, body


def _head(data: bytes) -> dict[str, Any]:
    try:
        head = json.loads(data)
    except ValueError as error:
        raise FrameError(f"a head is no JSON: {error}") from error
    if not isinstance(head, dict):
        raise FrameError("a head is no JSON object")
    return head


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionError("the other process closed the connection")
        got += count
    return bytes(data)


def packed_sequences(sequences: Sequence[TokenSequence]) -> tuple[list[list[Any]], list[bytes]]:
    """Return head and body for `run`: a [tokens, length, want, has segments] per sequence, and the ids and segments."""
    heads, body = [], []
    for one in sequences:
        segments = one.encoded.segments
        heads.append([len(one.encoded.ids), one.length, one.want.value, segments is not None])
        body.append(one.encoded.ids.tobytes())
        if segments is not None:
            body.append(segments.tobytes())
    return heads, body


def sequences_of(heads: Iterable[Sequence[Any]], body: bytes) -> list[TokenSequence]:
    """Return the sequences that `packed_sequences` packed."""
    sequences, start = [], 0

    def numbers(count: int) -> Any:
        nonlocal start
        part = np.frombuffer(body, _ID, count, start)
        start += count * _ID.itemsize
        return part

    for index, (count, length, want, segmented) in enumerate(heads):
        encoded = Encoded(numbers(count), numbers(count) if segmented else None, truncated=False)
        sequences.append(TokenSequence(encoded, length, Want(want), index))
    return sequences


def packed_outcome(outcome: Outcome) -> tuple[dict[str, Any], list[bytes]]:
    """Return an outcome as entries of the head and parts of the body of the message `done`."""
    head = {
        "shapes": [output.shape for output in outcome.outputs],
        "batches": outcome.batches,
        "queue_s": outcome.queue_s,
        "forward_s": outcome.forward_s,
    }
    return head, [np.ascontiguousarray(output, _FLOAT).tobytes() for output in outcome.outputs]


def outcome_of(head: Mapping[str, Any], body: bytes) -> Outcome:
    """Return the outcome that `packed_outcome` packed."""
    outputs, start = [], 0
    for shape in head["shapes"]:
        outputs.append(np.frombuffer(body, _FLOAT, prod(shape), start).reshape(shape))
        start += prod(shape) * _FLOAT.itemsize
    batches = [(sequences, tokens) for sequences, tokens in head["batches"]]
    return Outcome(outputs, batches, head["queue_s"], head["forward_s"])
