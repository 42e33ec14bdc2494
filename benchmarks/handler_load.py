"""Closed-loop load on one or more models: each client sends its next request after the answer to the previous one.

A load ends after a number of seconds or of calls. Calls that are unanswered at the end are awaited and counted with
their full latency, so the percentiles leave no wait out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PERCENT = 100
OK = 200
LEAST_CALLS = 3
MOST_SECONDS = 60.0
"""The most seconds of a turn that has a number of calls, for a machine that is too busy for so many calls."""


class Server(Protocol):
    """The address of a model server, and the headers that it requires."""

    @property
    def url(self) -> str:
        """Return the server's address."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that every request needs."""


@dataclass
class Sample:
    """The measurement of a load: all latencies in seconds, the number of answered texts (`items`), and the duration."""

    latencies: list[float] = field(default_factory=list)
    items: int = 0
    seconds: float = 0.0
    passes: int = 0
    sequences: int = 0

    @property
    def sequences_per_pass(self) -> float:
        """Return the average number of sequences that shared a forward pass."""
        return self.sequences / max(1, self.passes)

    @property
    def rate(self) -> float:
        """Return the answered texts per second."""
        return self.items / self.seconds

    def percentile(self, percent: int) -> float:
        """Return a percentile of the latencies, in milliseconds (nearest rank)."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[max(0, -(-percent * len(ordered) // PERCENT) - 1)]

    def add(self, other: Sample) -> None:
        """Add the measurement of another round to this measurement."""
        self.latencies += other.latencies
        self.items += other.items
        self.seconds += other.seconds
        self.passes += other.passes
        self.sequences += other.sequences


class Client:
    """A minimal HTTP client with one persistent connection, to leave the machine's cores to the server."""

    def __init__(self, server: Server) -> None:
        self._host, self._port = urlsplit(server.url).hostname, urlsplit(server.url).port
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: str = "") -> tuple[int, bytes]:
        """Send a POST request, and return the answer's status and body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n{self._headers}{headers}\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        answer = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), answer

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def register(server: Server, name: str, folder: Path) -> None:
    """Load the model in a folder into the server, under the name `name`.

    Raises:
        RuntimeError: the server answers another status than 200.
    """
    with contextlib.closing(Client(server)) as client:
        status, body = await client.post("/models", json.dumps({"model_name": name, "url": str(folder)}).encode())
    if status != OK:
        raise RuntimeError(f"{name}: {body.decode()}")


async def counters(server: Server, model: str) -> dict[str, Any]:
    """Return the totals that the batching handler has counted for a model so far."""
    with contextlib.closing(Client(server)) as client:
        status, body = await client.post(f"/models/{model}/invoke", b"{}", "cohost-counters: true\r\n")
    if status != OK:
        raise RuntimeError(f"{model}: {body.decode()}")
    sums: dict[str, Any] = json.loads(body)
    return sums


async def load(
    server: Server,
    model: str | Sequence[str],
    bodies: Sequence[bytes],
    *,
    items: int,
    clients: int,
    seconds: float,
    calls: int | None = None,
) -> Sample:
    """Let `clients` clients send the bodies, of `items` texts each, again and again: `calls` in all, or for `seconds`.

    With several models, requests go to one model after the other.

    Even in few seconds, each client makes at least three calls on average, since the first and last passes of a load
    are half empty and must not be all passes.

    Raises:
        RuntimeError: an answer has another status than 200.
    """
    sample = Sample()
    names = [model] if isinstance(model, str) else model
    numbers: Iterator[int] = count() if calls is None else iter(range(calls))
    started = time.perf_counter()
    end = started + (seconds if calls is None else MOST_SECONDS)

    async def run() -> None:
        with contextlib.closing(Client(server)) as client:
            for number in numbers:
                if time.perf_counter() >= end and (calls is not None or number >= LEAST_CALLS * clients):
                    break
                body, name = bodies[number % len(bodies)], names[number % len(names)]
                before = time.perf_counter()
                status, answer = await client.post(f"/models/{name}/invoke", body)
                sample.latencies.append(time.perf_counter() - before)
                if status != OK:
                    raise RuntimeError(f"{name}: {status} {answer.decode()}")
                sample.items += items

    await asyncio.gather(*(run() for _ in range(clients)))
    sample.seconds = time.perf_counter() - started
    return sample
