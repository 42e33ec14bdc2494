"""An answer's head and body leave together."""

from __future__ import annotations

import h11

from local_aws.one_write import OneWriteConnection


def _server_with_a_request() -> OneWriteConnection:
    connection = OneWriteConnection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert isinstance(connection.next_event(), h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    return connection


def test_the_head_waits_for_the_first_part_of_the_body() -> None:
    """And leaves with it, once."""
    connection = _server_with_a_request()
    assert connection.send(h11.Response(status_code=200, headers=[("Content-Length", "2")])) == b""
    first = connection.send(h11.Data(data=b"h"))
    assert first.startswith(b"HTTP/1.1 200")
    assert first.endswith(b"\r\n\r\nh")
    assert connection.send(h11.Data(data=b"i")) == b"i"
    assert connection.send(h11.EndOfMessage()) == b""


def test_an_answer_without_a_body_is_sent_with_its_end() -> None:
    """No head is left behind."""
    connection = _server_with_a_request()
    assert connection.send(h11.Response(status_code=204, headers=[])) == b""
    assert connection.send(h11.EndOfMessage()).startswith(b"HTTP/1.1 204")


def test_a_provisional_answer_is_not_held() -> None:
    """100 Continue must reach the client before it sends its body."""
    connection = OneWriteConnection(h11.SERVER)
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    connection.next_event()
    assert connection.send(h11.InformationalResponse(status_code=100, headers=[])).startswith(b"HTTP/1.1 100")
