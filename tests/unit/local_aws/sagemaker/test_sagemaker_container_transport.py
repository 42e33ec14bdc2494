"""Requests to containers: kept connections, answers of every form, and faults as httpx's own exceptions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from local_aws.sagemaker.containers import transport as container_transport
from local_aws.sagemaker.containers.transport import ContainerTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

pytestmark = pytest.mark.process

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"


class Peer:
    """A server that sends prepared answers; None delays, and b"" closes the connection."""

    def __init__(self, answers: list[bytes | None]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.connections: list[PeerConnection] = []


class PeerConnection(asyncio.Protocol):
    """One connection of a test server; its requests are small enough to arrive at once."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        peer.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Opened."""
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """A request."""
        self._peer.requests.append(data)
        self._peer.asked.set()
        answer = self._peer.answers.pop(0)
        if answer is not None:
            self.transport.write(answer)
            if not any(word in answer for word in (b"Length", b"chunked")) or b"close" in answer:
                self.transport.close()


@contextlib.asynccontextmanager
async def peer_and_client(answers: list[bytes | None]) -> AsyncIterator[tuple[Peer, httpx.AsyncClient]]:
    """Return a server with these answers, and a client for it."""
    peer = Peer(answers)
    server = await asyncio.get_running_loop().create_server(lambda: PeerConnection(peer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(transport=ContainerTransport(), base_url=f"http://127.0.0.1:{port}") as client:
        yield peer, client
    for connection in peer.connections:
        connection.transport.abort()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.01)


def _run(answers: list[bytes | None], scenario: Callable[[Peer, httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(60), peer_and_client(answers) as (peer, client):
            return await scenario(peer, client)

    return asyncio.run(run())


def test_one_connection_serves_one_request_after_another() -> None:
    """A connection is reused, and each answer has status, header fields, body and elapsed time."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        for _ in range(3):
            answer = await client.post("/models/m/invoke?x=1", content=b"body", headers={"X-B": "c"})
            assert (answer.status_code, answer.content, answer.headers["x-a"]) == (200, b"hi", "b")
            assert answer.elapsed.total_seconds() > 0
        assert len(peer.connections) == 1
        assert peer.requests[0].startswith(b"POST /models/m/invoke?x=1 HTTP/1.1\r\n")
        assert peer.requests[0].endswith(b"\r\n\r\nbody")
        assert b"x-b: c" in peer.requests[0].lower()

    _run([OK] * 3, scenario)


def test_requests_at_once_take_connections_of_their_own() -> None:
    """Simultaneous requests have separate connections, so none waits for the answer of another."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.get("/") for _ in range(8)))
        assert [answer.content for answer in answers] == [b"hi"] * 8
        assert len(peer.connections) == 8

    _run([OK] * 8, scenario)


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\n\r\nhi", 2),
        (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", 2),
    ],
)
def test_answers_of_every_form_are_read_whole(answer: bytes, connections: int) -> None:
    """Answers are read completely if they are chunked or end with the connection."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).content == b"hi"
        assert (await client.get("/")).content == b"hi"
        assert len(peer.connections) == connections

    _run([answer, OK], scenario)


def test_what_follows_an_answer_is_nobodys() -> None:
    """A connection with bytes after an answer is not reused."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).content == b"hi"
        assert (await client.get("/")).content == b"hi"
        assert len(peer.connections) == 2

    _run([OK + b"more", OK], scenario)


def test_an_idle_connection_is_not_trusted_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was idle for long is not reused, because the container may close it."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        await client.get("/")
        monkeypatch.setattr(container_transport, "_KEEP_S", 0.0)
        await client.get("/")
        assert len(peer.connections) == 2

    _run([OK, OK], scenario)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nclose", b"this is no HTTP\r\n\r\n"]
)
def test_a_broken_answer_is_a_protocol_error(answer: bytes) -> None:
    """A connection that ends early, in the middle of an answer, or speaks something else; the next call is served."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/")
        assert (await client.get("/")).content == b"hi"
        assert len(peer.connections) == 2

    _run([answer, OK], scenario)


def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    """A slow answer is a timeout, and its connection is closed."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/", timeout=httpx.Timeout(60, read=0.1))
        assert (await client.get("/")).content == b"hi"
        assert len(peer.connections) == 2

    _run([None, OK], scenario)


def test_a_call_that_is_given_up_takes_its_connection_along() -> None:
    """The connection of a cancelled call is closed."""

    async def scenario(peer: Peer, client: httpx.AsyncClient) -> None:
        call = asyncio.create_task(client.get("/"))
        await peer.asked.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await client.get("/")).content == b"hi"
        assert len(peer.connections) == 2

    _run([None, OK], scenario)


def test_nobody_at_the_address_is_a_connect_error() -> None:
    """An address where nobody listens raises a connect error, so another instance can be tried."""

    async def scenario() -> None:
        async with httpx.AsyncClient(transport=ContainerTransport()) as client:
            await client.get("http://127.0.0.1:9/")

    with pytest.raises(httpx.ConnectError):
        asyncio.run(scenario())
