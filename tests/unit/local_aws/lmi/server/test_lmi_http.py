"""Answers have the real server's text and headers, whatever a handler returns."""

from __future__ import annotations

import asyncio
from typing import Any

from local_aws.lmi.server.http import NetworkThreads, Reply, json_reply


def _sent(reply: Reply, *, close: bool = False) -> tuple[dict[bytes, bytes], bytes]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(reply.send(send, "id", close=close))
    return dict(messages[0]["headers"]), messages[1]["body"]


def test_errors_close_the_connection_and_answers_keep_it() -> None:
    """Recorded: connection: close from 400 on."""
    assert _sent(json_reply({}, 200))[0][b"connection"] == b"keep-alive"
    assert _sent(json_reply({}, 400))[0][b"connection"] == b"close"
    assert _sent(json_reply({}, 200), close=True)[0][b"connection"] == b"close"


def test_no_content_has_neither_body_nor_length() -> None:
    """Recorded (19): 204 has no content-length."""
    headers, body = _sent(Reply(204, b"x"))
    assert b"content-length" not in headers
    assert body == b""


def test_a_handlers_headers_cannot_break_the_answer() -> None:
    """Line breaks, odd names and the framing of the message are not a handler's to set."""
    headers, _ = _sent(Reply(200, b"ab", {"X": "a\r\nb: c", "bad name": "x", "Content-Length": "99", "Y": "\u20ac"}))
    assert headers[b"x"] == b"a b: c"
    assert headers[b"y"] == b"?"
    assert headers[b"content-length"] == b"2"
    assert b"bad name" not in headers


def test_connections_share_the_network_threads_in_turn() -> None:
    """With one of four network threads blocked every fourth connection is unanswered (recorded: 31)."""
    threads = NetworkThreads(4)
    threads.stick(threads.take())
    assert [threads.serves(threads.take()) for _ in range(8)] == [True, True, True, False] * 2
