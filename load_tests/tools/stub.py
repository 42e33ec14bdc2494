"""A target with known behaviour, for tests and benchmarks of the load test itself: `python -m load_tests.tools.stub`.

The stub is one process with one thread and epoll. The stub does as little work per call as possible, since the load
test itself is measured, not the stub. The stub answers only programs on this machine (cohost/callers.py). On
SageMaker's paths, a request must have a signature, but the signature is not verified, since the stub has nothing to
read or change.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cohost.callers import foreign_caller

if TYPE_CHECKING:
    from collections.abc import Callable


READ_BYTES = 1 << 20
# The header fields by which a web page differs from a program.
_FIELDS = re.compile(rb"\r\n(host|origin|sec-fetch-site|authorization):[ \t]*([^\r]*)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """The behaviour of a stub.

    Attributes:
        delay_s: the seconds from a whole request to its answer.
        fail_every: the n for which every n-th call gets `fail_status`; 0: no call fails.
        fail_status: the HTTP status of a failed call.
        freeze_after_s: the seconds from the first call to a pause without answers; negative: no pause.
        freeze_s: the length of the pause in seconds.
        workers: the most calls that are worked on at once; 0: any number.
        silent: True if no call is ever answered.
        items: the number of results in an answer; 0: as many as the request has inputs.
    """

    delay_s: float = 0.0
    fail_every: int = 0
    fail_status: int = 503
    freeze_after_s: float = -1.0
    freeze_s: float = 0.0
    workers: int = 0
    silent: bool = False
    items: int = 0


@dataclass
class Connection:
    """One accepted connection; `data` holds the received bytes of its next request."""

    sock: socket.socket
    data: bytearray = field(default_factory=bytearray)


class Stub:
    """The stub's server. `connections` counts accepted connections, `calls` complete, not refused requests."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.calls = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.settimeout(0)
        self.port = self._listener.getsockname()[1]
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        self._open: dict[int, Connection] = {}
        self._due: deque[tuple[float, Connection, bytes]] = deque()
        self._free_at = [0.0] * behaviour.workers
        self._first_call: float | None = None

    def serve(self, running: Callable[[], bool]) -> None:
        """Answer requests until `running` returns False."""
        while running():
            self._wait()
            for fileno, _ in self._poll.poll(0):
                if fileno == self._listener.fileno():
                    self._accept()
                elif fileno in self._open:
                    self._read(self._open[fileno])
            self._answer()

    def _wait(self) -> None:
        """Sleep until a request arrives or an answer is due, with select(), as epoll waits for whole milliseconds."""
        left = 0.2 if not self._due else min(0.2, self._due[0][0] - time.perf_counter())
        if left > 0:
            select.select([self._poll], [], [], left)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open[sock.fileno()] = Connection(sock)
                self._poll.register(sock.fileno(), select.EPOLLIN)
                self.connections += 1

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            del self._open[connection.sock.fileno()]
            connection.sock.close()
            return
        connection.data += data
        while (request := _take_request(connection.data)) is not None:
            self._schedule(connection, request)

    def _schedule(self, connection: Connection, request: tuple[bytes, bytes]) -> None:
        head, body = request
        received = time.perf_counter()
        answer = _refusal(head) or self._own(head)
        if answer is not None:
            connection.sock.send(answer)
            return
        self.calls += 1
        if self._first_call is None:
            self._first_call = received
        if not self.behaviour.silent:
            self._due.append((self._when(received), connection, self._answer_to(body)))

    def _when(self, received: float) -> float:
        begins = received
        if self._free_at:
            worker = min(range(len(self._free_at)), key=self._free_at.__getitem__)
            begins = max(received, self._free_at[worker])
        due = begins + self.behaviour.delay_s
        if self.behaviour.freeze_after_s >= 0 and self._first_call is not None:
            freezes = self._first_call + self.behaviour.freeze_after_s
            if freezes <= due < freezes + self.behaviour.freeze_s:
                due = freezes + self.behaviour.freeze_s
        if self._free_at:
            self._free_at[worker] = due
        # Answers leave in the order of their requests, so that the queue stays sorted.
        return max(due, self._due[-1][0]) if self._due else due

    def _answer_to(self, body: bytes) -> bytes:
        every = self.behaviour.fail_every
        if every and self.calls % every == 0:
            return _fault(self.behaviour.fail_status, "ServiceUnavailable", "full")
        items = self.behaviour.items or _items_of(body)
        return _response(200, b"[" + b",".join([b'{"label":"a","score":0.9}'] * items) + b"]")

    def _own(self, head: bytes) -> bytes | None:
        """Return the answer to a request that is not a call, such as one for the stub's counts; None for a call."""
        if head.startswith(b"GET /models"):
            return _response(200, b'{"models":[{"modelName":"stub","modelUrl":"stub"}]}')
        if head.startswith(b"GET /counts"):
            return _response(200, json.dumps({"connections": self.connections, "calls": self.calls}).encode())
        return None if head.startswith(b"POST /") else _fault(404, "ResourceNotFoundException", "no such route")

    def _answer(self) -> None:
        while self._due and self._due[0][0] <= time.perf_counter():
            _, connection, answer = self._due.popleft()
            with contextlib.suppress(OSError):  # the caller may have closed the connection
                connection.sock.send(answer)


def _refusal(head: bytes) -> bytes | None:
    """Return the refusal of a request that comes from a foreign caller or lacks a signature; otherwise None."""
    headers = {name.lower().decode(): value.decode("latin-1") for name, value in _FIELDS.findall(head)}
    reason = foreign_caller(headers)
    if reason is not None:
        return _fault(403, "AccessDeniedException", reason)
    if head.startswith(b"POST /endpoints/") and not headers.get("authorization", "").startswith("AWS4-"):
        return _fault(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
    return None


def _take_request(data: bytearray) -> tuple[bytes, bytes] | None:
    """Remove the first complete request from the received bytes; return its head and body, or None if there is none."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[:end])
    length = 0
    position = head.lower().find(b"\r\ncontent-length:")
    if position >= 0:
        length = int(head[position + 17 :].partition(b"\r\n")[0])
    if len(data) < end + 4 + length:
        return None
    body = bytes(data[end + 4 : end + 4 + length])
    del data[: end + 4 + length]
    return head, body


def _items_of(body: bytes) -> int:
    """Return the number of texts in a call's body; a body with a single text is not parsed."""
    if not body.startswith(b'{"inputs": ['):
        return 1
    return len(json.loads(body)["inputs"])


def _response(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


def _fault(status: int, kind: str, message: str) -> bytes:
    return _response(status, json.dumps({"code": status, "type": kind, "message": message}).encode())


def main() -> None:
    """Run the stub until SIGTERM or SIGINT; the first line of its output is its port."""
    parser = argparse.ArgumentParser(description="A target with known behaviour.")
    parser.add_argument("--delay-ms", dest="delay_s", type=lambda text: float(text) / 1000, default=0)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--freeze-after", dest="freeze_after_s", type=float, default=-1)
    parser.add_argument("--freeze", dest="freeze_s", type=float, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--items", type=int, default=0)
    stub = Stub(Behaviour(**vars(parser.parse_args())))
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))
    sys.stdout.write(f"{stub.port}\n")
    sys.stdout.flush()
    stub.serve(lambda: not stopped)


if __name__ == "__main__":
    main()
