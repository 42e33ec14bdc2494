"""Memory for the bodies of requests."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from typing import Any

import pytest

from local_aws.kit.bodies import (
    MIB,
    BodyMemory,
    BodyTooLargeError,
    BusyError,
    CallerLeftError,
    RequestBody,
    gzip_exceeds,
)

PIECE = 64 * 1024
IN_CHUNKS = {"transfer-encoding": "chunked"}


class Sender:
    """A caller that sends so many bytes in pieces; `sent` counts the bytes that were asked for."""

    def __init__(self, count: int) -> None:
        self.left, self.sent = count, 0

    async def receive(self) -> Any:
        """The next piece, after other tasks could run."""
        await asyncio.sleep(0)
        piece = min(PIECE, self.left)
        self.left -= piece
        self.sent += piece
        return {"type": "http.request", "body": bytes(piece), "more_body": self.left > 0}


def memory(total: int = MIB, requests: int = 100, wait_s: float = 60.0) -> BodyMemory:
    """A memory for bodies."""
    return BodyMemory(total_bytes=total, wait_s=wait_s, most_requests=requests)


def length(count: int) -> dict[str, str]:
    """The headers of a body of so many bytes."""
    return {"content-length": str(count)}


def read(sender: Sender, headers: dict[str, str], limit: int, of: BodyMemory | None = None) -> bytes:
    """The body that one request is read to."""

    async def reading() -> bytes:
        async with (of or memory()).request() as body:
            return await body.read(sender.receive, headers, limit)

    return asyncio.run(reading())


@pytest.mark.parametrize("count", [0, 1, PIECE, PIECE + 1, 5 * PIECE])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_up_to_the_limit_is_read_whole(count: int, *, chunked: bool) -> None:
    """The limit itself is allowed, whether the length is known before or not."""
    assert len(read(Sender(count), IN_CHUNKS if chunked else length(count), count)) == count


@pytest.mark.parametrize(
    "headers", [length(2 * MIB), IN_CHUNKS, {**IN_CHUNKS, "x-amz-decoded-content-length": str(2 * MIB)}, {}]
)
def test_a_body_over_the_limit_is_dropped_and_its_caller_can_send_it_to_the_end(headers: dict[str, str]) -> None:
    """The bytes are never in memory, and the caller does not meet a closed connection before the answer."""
    sender = Sender(2 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLargeError):
            read(sender, headers, MIB // 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sender.sent == 2 * MIB
    assert peak < MIB + MIB // 4


def test_a_caller_that_asks_first_is_told_before_a_byte_is_read() -> None:
    """`Expect: 100-continue` waits for the answer, so nothing needs to be dropped."""
    sender = Sender(2 * MIB)
    with pytest.raises(BodyTooLargeError):
        read(sender, {**length(2 * MIB), "expect": "100-continue"}, MIB)
    assert sender.sent == 0


def test_many_bodies_take_no_more_memory_than_all_may_together() -> None:
    """Callers beyond that wait in their order and all get their turn; the peak does not grow with their number."""
    held: list[int] = []
    most = 0

    async def one(of: BodyMemory, number: int) -> None:
        nonlocal most
        async with of.request() as body:
            content = await body.read(Sender(MIB).receive, length(MIB), MIB)
            held.append(number)
            most = max(most, body.reserved)
            await asyncio.sleep(0)
            assert len(content) == MIB

    async def all_of_them() -> None:
        of = memory(total=4 * MIB)
        await asyncio.gather(*(one(of, number) for number in range(40)))
        assert await reserved_at_once(of, 4 * MIB)

    tracemalloc.start()
    try:
        asyncio.run(all_of_them())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(held) == list(range(40))
    assert held[:4] == [0, 1, 2, 3]
    assert most == MIB
    # Each of the four has its bytes and, for a moment, their copy; the others hold their first piece.
    assert peak < 14 * MIB


async def reserved_at_once(of: BodyMemory, count: int) -> bool:
    """Whether so many bytes are free now."""
    await asyncio.wait_for(of.reserve(count), 0.1)
    return True


def test_a_caller_that_waits_too_long_is_told_so_and_blocks_nobody() -> None:
    """The memory is held by a caller that never sends its rest; the next is refused, and the one after finds room."""

    async def scene() -> None:
        of, stuck = memory(total=4 * PIECE, wait_s=0.05), asyncio.Event()
        sender = Sender(4 * PIECE)

        async def stops_half_way() -> Any:
            if sender.sent == 2 * PIECE:
                stuck.set()
                await asyncio.Event().wait()
            return await sender.receive()

        async with of.request() as slow:
            reading = asyncio.create_task(slow.read(stops_half_way, length(4 * PIECE), MIB))
            await stuck.wait()
            async with of.request() as body:
                with pytest.raises(BusyError):
                    await body.read(Sender(2 * PIECE).receive, length(2 * PIECE), MIB)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        async with of.request() as body:
            assert len(await body.read(Sender(4 * PIECE).receive, length(4 * PIECE), MIB)) == 4 * PIECE

    asyncio.run(scene())


def test_a_body_whose_caller_leaves_is_no_shorter_body() -> None:
    """Half an upload must not be stored as a whole one."""

    async def scene() -> None:
        messages = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async with memory().request() as body:
            with pytest.raises(CallerLeftError):
                await body.read(receive, length(8), MIB)

    asyncio.run(scene())


def test_a_waiting_caller_that_leaves_gives_its_turn_away() -> None:
    """Neither memory nor a place in the row is lost with it."""

    async def scene() -> None:
        of = memory(total=MIB)
        await of.reserve(MIB)
        leaves = asyncio.create_task(of.reserve(MIB))
        stays = asyncio.create_task(of.reserve(MIB))
        await asyncio.sleep(0)
        leaves.cancel()
        of.free(MIB)
        await stays
        of.free(MIB)
        assert await reserved_at_once(of, MIB)

    asyncio.run(scene())


def test_requests_beyond_the_most_at_once_are_refused() -> None:
    """The place of a request is free again when it has ended, also by an error."""

    async def scene() -> None:
        of = memory(requests=1)
        async with of.request() as body:
            assert isinstance(body, RequestBody)
            with pytest.raises(BusyError):
                async with of.request():
                    raise AssertionError("let in")
        with pytest.raises(ValueError, match="mine"):
            async with of.request():
                raise ValueError("mine")
        async with of.request():
            pass

    asyncio.run(scene())


def test_a_gzip_bomb_is_noticed_without_unpacking_it() -> None:
    """Small data that unpack to far more are over the limit; the memory stays at the limit."""
    bomb = gzip.compress(bytes(64 * MIB))
    tracemalloc.start()
    try:
        assert gzip_exceeds(bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB
    assert not gzip_exceeds(gzip.compress(bytes(MIB)), MIB)
    assert not gzip_exceeds(b"no gzip", MIB)
