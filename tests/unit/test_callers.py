"""A server of this project lets in requests of the user's programs, and none of a web page."""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cohost.callers import TOKEN_HEADER, Guard, foreign_caller, write_private

if TYPE_CHECKING:
    from pathlib import Path

    from cohost.callers import Message, Receive, Send

TOKEN = "the-token"


class Behind:
    """An application that records its requests."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer 200."""
        assert await receive()
        self.seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"reached"})


async def refuse(reason: str, send: Send) -> None:
    """Answer 403 with the reason."""
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": reason.encode()})


def ask(headers: dict[str, str], *, url: str = "http://127.0.0.1:8084") -> tuple[httpx.Response, list[Message]]:
    """Return the guard's answer to a request, and the requests that reached the application."""
    behind = Behind()
    # Starlette's own test client would bring a host and an event loop of its own.
    transport = httpx.ASGITransport(app=Guard(behind, TOKEN, refuse))

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            return await client.post("/models", content=b"x", headers=headers)

    return asyncio.run(send()), behind.seen


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8084", "127.0.0.1", "localhost:1", "LOCALHOST", "bucket.s3.localhost:4599", "[::1]:8084", "[::1]"],
)
def test_a_program_of_this_machine_is_let_in(host: str) -> None:
    """A request without a browser's headers is accepted under every name of this machine."""
    assert foreign_caller({"host": host}) is None


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_an_address_that_the_user_typed_is_let_in(site: str) -> None:
    """A browser request for an address that the user typed is accepted."""
    assert foreign_caller({"host": "127.0.0.1:4599", "sec-fetch-site": site}) is None


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"host": "127.0.0.1", "origin": "http://evil.test"}, "Origin http://evil.test"),
        ({"host": "127.0.0.1", "origin": "null"}, "Origin null"),
        ({"host": "127.0.0.1:1", "origin": "http://127.0.0.1:1"}, "Origin http://127.0.0.1:1"),
        ({"host": "127.0.0.1", "sec-fetch-site": "cross-site"}, "Sec-Fetch-Site cross-site"),
        ({"host": "127.0.0.1", "sec-fetch-site": "same-site"}, "Sec-Fetch-Site same-site"),
        ({"host": "127.0.0.1", "sec-fetch-site": ""}, "Sec-Fetch-Site "),
        ({"host": "evil.test:4599"}, "Host evil.test:4599"),
        ({"host": "127.0.0.1.evil.test"}, "Host 127.0.0.1.evil.test"),
        ({"host": "localhost.evil.test"}, "Host localhost.evil.test"),
        ({"host": "evillocalhost"}, "Host evillocalhost"),
        ({"host": "evil.test@127.0.0.1"}, "Host evil.test@127.0.0.1"),
        ({"host": "127.0.0.1\n"}, "Host 127.0.0.1"),
        ({"host": ""}, "Host "),
        ({}, "Host "),
    ],
)
def test_a_web_page_is_told_apart(headers: dict[str, str], field: str) -> None:
    """A request of a web page is rejected by its browser's headers or its host name, and the field is named."""
    reason = foreign_caller(headers)
    assert reason is not None
    assert reason.startswith(field)


def test_who_holds_the_token_gets_through_and_the_token_stays_behind() -> None:
    """A request with the token reaches the application without the token's header."""
    answer, seen = ask({"X-Cohost-Token": TOKEN, "x-other": "1"})
    assert answer.text == "reached"
    names = [name for name, _ in seen[0]["headers"]]
    assert b"x-other" in names
    assert TOKEN_HEADER.encode() not in names


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "x-cohost-token: missing"),
        ({"x-cohost-token": ""}, "x-cohost-token: missing"),
        ({"x-cohost-token": "another"}, "x-cohost-token: not the token of this start"),
        ({"x-cohost-token": TOKEN, "origin": "http://127.0.0.1:8084"}, "Origin http://127.0.0.1:8084"),
        ({"x-cohost-token": TOKEN, "host": "evil.test"}, "Host evil.test"),
        ({"x-cohost-token": TOKEN, "sec-fetch-site": "cross-site"}, "Sec-Fetch-Site cross-site"),
    ],
)
def test_nobody_else_reaches_the_application(headers: dict[str, str], reason: str) -> None:
    """A request without the token, or of a web page even with the token, is rejected with the reason."""
    answer, seen = ask(headers)
    assert (answer.status_code, seen) == (403, [])
    assert answer.text.startswith(reason)
    assert TOKEN not in answer.text


@pytest.mark.parametrize(("server", "status"), [(("/folder/socket", None), 200), (("127.0.0.1", 1), 403), (None, 403)])
def test_a_unix_socket_needs_no_token(server: tuple[str, int | None] | None, status: int) -> None:
    """A server on a Unix socket needs no token, because the file decides who may connect."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "server": server, "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(Behind(), TOKEN, refuse)(scope, receive, send))
    assert sent[0]["status"] == status


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A private file is readable by its owner only, even if an earlier file was readable by all."""
    file = tmp_path / "token"
    file.write_text("old")
    file.with_name("token.partial").write_text("left over")
    write_private(file, "new")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [file]
