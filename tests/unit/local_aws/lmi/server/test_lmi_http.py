"""Answers have the real server's text and headers, whatever a handler puts into them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_aws.lmi.answers import compact, pretty
from local_aws.lmi.errors import BadRequest, EngineFailure, Fault, ModelNotFound
from local_aws.lmi.server.http import Reply, fault_reply, json_reply


def _sent(reply: Reply, *, close: bool = False) -> tuple[dict[bytes, bytes], bytes]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(reply.send(send, "id", close=close))
    return dict(messages[0]["headers"]), messages[1]["body"]


def test_gson_escapes_what_html_would_take_amiss() -> None:
    """Recorded: angle brackets, apostrophes and equals signs are written as code points."""
    assert pretty({"a": "<'=&>"}) == '{\n  "a": "\\u003c\\u0027\\u003d\\u0026\\u003e"\n}\n'


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_json_text_reads_back(value: Any) -> None:
    """Escaping changes the text and never the value."""
    assert json.loads(pretty(value)) == json.loads(compact(value)) == value


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        (ModelNotFound("m"), {"code": 404, "type": "ModelNotFoundException", "message": "m"}),
        (BadRequest("b"), {"code": 400, "type": "BadRequestException", "message": "b"}),
        (EngineFailure(), {"code": 500, "type": "EngineException"}),
    ],
)
def test_a_fault_becomes_code_type_and_message(fault: Fault, body: dict[str, Any]) -> None:
    """A fault without a message has none in its body either (07, initto)."""
    assert json.loads(fault_reply(fault).body) == body


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
