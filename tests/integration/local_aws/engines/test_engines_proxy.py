"""The proxy in front of a real server: accepted callers, and unchanged requests and answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from fakes.refusals import refused

from cohost.callers import TOKEN_HEADER
from local_aws.engines.engine import EngineError
from local_aws.engines.proxy import guarded_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "the-token"
HEADERS = {TOKEN_HEADER: TOKEN}


class Behind:
    """A server with one thread that stores each request and writes `answer` unchanged.

    What stands after `later` in the answer is written once `more` is set.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.requests: list[bytes] = []
        self.answer = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nX-Custom: Kept\r\nConnection: close\r\n\r\nok"
        self.later = b""
        self.more = threading.Event()
        self._listener = listener
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop the server; a waiting caller gets the rest of the answer."""
        self.more.set()
        # Wakes the thread that waits for a caller.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(_whole_request(connection))
                    connection.sendall(self.answer)
                    if self.later:
                        self.more.wait(60)
                        connection.sendall(self.later)


def _whole_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture(params=["tcp", "unix"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Behind, str]]:
    """Start the server behind the proxy on a port or a Unix socket, and return its address."""
    if request.param == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        address = f"unix:{tmp_path}/s"
    server = Behind(listener)
    yield server, address
    server.close()


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_request_passes_as_it_is(behind: tuple[Behind, str], port: int) -> None:
    """Method, escaped path, query, the caller's header fields and body pass unchanged; the token does not pass."""
    server, address = behind
    with guarded_proxy(port, TOKEN, address), httpx.Client(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}/models/a%2Fb/invoke?q=1&q=%20"
        client.headers.clear()
        answer = client.post(url, content=b"\x00body", headers={**HEADERS, "X-Mine": "Yes", "Content-Type": "a/b"})
    assert (answer.status_code, answer.reason_phrase, answer.content) == (200, "Fine", b"ok")
    assert answer.headers["x-custom"] == "Kept"
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    line, *fields = head.decode().lower().split("\r\n")
    assert line == "post /models/a%2fb/invoke?q=1&q=%20 http/1.1"
    assert body == b"\x00body"
    assert "x-mine: yes" in fields
    names = {field.partition(":")[0] for field in fields}
    assert names <= {"host", "content-length", "content-type", "x-mine", "accept", "accept-encoding", "user-agent"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {TOKEN_HEADER: "a guess"},
        {**HEADERS, "Origin": "http://evil.test"},
        {**HEADERS, "Sec-Fetch-Site": "cross-site"},
        {**HEADERS, "Host": "evil.test"},
    ],
)
def test_nothing_of_a_stranger_or_a_page_reaches_the_server(
    behind: tuple[Behind, str], port: int, headers: dict[str, str]
) -> None:
    """A caller without the token, or a web page, gets 403, and the server gets no connection."""
    server, address = behind
    with guarded_proxy(port, TOKEN, address):
        answer = httpx.post(f"http://127.0.0.1:{port}/models?url=/x", headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["type"]) == (403, "AccessDeniedException")
    assert server.requests == []


def test_an_answer_passes_while_it_comes(behind: tuple[Behind, str], port: int) -> None:
    """Each part of a stream is passed on before the next is written."""
    server, address = behind
    server.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nfirst\r\n"
    server.later = b"4\r\nlast\r\n0\r\n\r\n"
    with (
        guarded_proxy(port, TOKEN, address),
        httpx.stream("GET", f"http://127.0.0.1:{port}/x", headers=HEADERS, trust_env=False) as answer,
    ):
        parts = answer.iter_raw()
        assert next(parts) == b"first"
        server.more.set()
        assert b"".join(parts) == b"last"


def test_faults_pass_with_their_own_words(behind: tuple[Behind, str], port: int) -> None:
    """The server's errors pass with status, reason and JSON."""
    server, address = behind
    body = json.dumps({"code": 507, "type": "WlmOutOfMemoryException"}).encode()
    server.answer = b"HTTP/1.1 507 No room at all\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with guarded_proxy(port, TOKEN, address):
        answer = httpx.get(f"http://127.0.0.1:{port}/models", headers=HEADERS, trust_env=False)
    assert (answer.status_code, answer.reason_phrase, answer.content) == (507, "No room at all", body)


def test_a_server_that_is_not_there_is_told_as_such(tmp_path: Path, port: int) -> None:
    """The proxy answers 502 if the server cannot be reached, also to several callers, and continues."""
    with guarded_proxy(port, TOKEN, f"unix:{tmp_path}/none"):

        async def three() -> list[httpx.Response]:
            async with httpx.AsyncClient(headers=HEADERS, trust_env=False) as client:
                return await asyncio.gather(*(client.get(f"http://127.0.0.1:{port}/ping") for _ in range(3)))

        answers = asyncio.run(three())
    assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {(502, "BadGatewayException")}


def test_the_port_is_free_again_afterwards(behind: tuple[Behind, str], port: int) -> None:
    """The proxy frees its port even if a connection is open; a used port is reported before the start."""
    _, address = behind
    with httpx.Client(trust_env=False) as client:
        for _ in range(2):
            with guarded_proxy(port, TOKEN, address):
                assert client.get(f"http://127.0.0.1:{port}/ping", headers=HEADERS).status_code == 200
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            refused("engine-port-taken", "--port", kind=EngineError),
            guarded_proxy(taken.getsockname()[1], TOKEN, address),
        ):
            pytest.fail("the port is taken")
