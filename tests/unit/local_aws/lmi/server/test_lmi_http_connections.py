"""The container's connections: the time of answers, the length of heads, and the end of connections."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from local_aws.lmi.server.http import LmiHttpProtocol, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

pytestmark = pytest.mark.process
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


@contextlib.asynccontextmanager
async def _connected(app: App) -> AsyncIterator[Stream]:
    """A connection to a server of the application."""
    config, state = uvicorn.Config(app, lifespan="off", log_level="critical"), ServerState()  # type: ignore[arg-type]
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: LmiHttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        server.close()
        while state.connections:  # noqa: ASYNC110 - uvicorn tells nobody when its end of one is closed
            await asyncio.sleep(0)


async def _sized(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body."""
    size = 0
    while True:
        message = await receive()
        size += len(message["body"])
        if not message["more_body"]:
            break
    await Reply(body=str(size).encode(), reason="Fine").send(send, "id")


async def _head(stream: Stream) -> bytes:
    return await stream[0].readuntil(b"\r\n\r\n")


def test_a_head_does_not_wait_for_the_body() -> None:
    """The head of an answer is sent before its first part, and each part when it is ready."""

    async def run() -> None:
        go_on = asyncio.Event()

        async def in_parts(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send(START)
            await go_on.wait()
            await send({"type": "http.response.body", "body": b"h", "more_body": True})
            await send({"type": "http.response.body", "body": b"i"})

        async with _connected(in_parts) as stream:
            stream[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await _head(stream)).startswith(b"HTTP/1.1 200 ")
            go_on.set()
            assert await stream[0].readexactly(2) == b"hi"

    asyncio.run(run())


def test_an_answer_without_a_body_leaves_nothing_behind() -> None:
    """The next answer on the connection is whole."""

    async def run() -> None:
        statuses = iter((204, 200))

        async def one_each(_scope: Scope, _receive: Receive, send: Send) -> None:
            await Reply(next(statuses), b"ok").send(send, "id")

        async with _connected(one_each) as stream:
            for status, body in ((b"204", b""), (b"200", b"ok")):
                stream[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await _head(stream)).split()[1] == status
                assert await stream[0].readexactly(len(body)) == body

    asyncio.run(run())


def test_a_caller_that_asks_first_is_told_to_go_on() -> None:
    """Expect: 100-continue: the word comes before the body does."""

    async def run() -> None:
        async with _connected(_sized) as stream:
            stream[1].write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert (await _head(stream)).startswith(b"HTTP/1.1 100 ")
            stream[1].write(b"abc")
            assert (await _head(stream)).startswith(b"HTTP/1.1 200 Fine\r\n")
            assert await stream[0].readexactly(1) == b"3"

    asyncio.run(run())


def test_a_head_may_have_64_kib() -> None:
    """A request head may have 64 KiB, because custom attributes can be long; a longer one is rejected."""

    async def run() -> None:
        async with _connected(_sized) as stream:
            stream[1].write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 70_000)
            assert (await _head(stream)).startswith(b"HTTP/1.1 400 Invalid HTTP message.\r\n")
        config = uvicorn.Config(_sized)  # type: ignore[arg-type]
        half_read = LmiHttpProtocol(config=config, server_state=ServerState(), app_state={}).conn
        half_read.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 60_000)
        assert half_read.next_event() is h11.NEED_DATA

    asyncio.run(run())


@pytest.mark.parametrize("asked", [b"", b"Connection: close\r\n"])
def test_a_caller_that_asks_for_the_end_gets_it_under_keep_alive(asked: bytes) -> None:
    """A connection is closed for "Connection: close", although the answer says keep-alive (recorded: 19)."""

    async def run() -> None:
        async with _connected(_sized) as stream:
            stream[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n" + asked + b"\r\n")
            head = (await _head(stream)).lower()
            assert re.findall(rb"\r\nconnection: (.*?)\r\n", head) == [b"keep-alive"]
            assert await stream[0].readexactly(1) == b"0"
            if asked:
                assert await stream[0].read() == b""

    asyncio.run(run())
