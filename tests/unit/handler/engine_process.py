"""Engine processes in tests: links to them, a server process that is their owner, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from handler_calls import Caller

import cohost.handler
from cohost.handler import cohost_place
from cohost.handler.cohost_link import Link
from cohost.handler.cohost_service import Service
from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

CODE = Path(cohost.handler.__file__).parent
LIMIT_S = 120.0


@contextlib.contextmanager
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the server: engine processes end with it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: int) -> bool:
    """Return True if a process has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "it never happens"
        time.sleep(0.01)


async def happens(condition: Callable[[], bool]) -> None:
    """Wait for what another process does, in an event loop."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def engine_of(call: Caller) -> int:
    """The id of the process that has a model."""
    return int((await call.counters())["engine_pid"])


def files() -> list[str]:
    """The names of the files beside the sockets, without locks, which belong to the server."""
    return sorted(path.name for path in cohost_place._own_folder().iterdir() if path.suffix != ".lock")


def kill(process: int) -> None:
    """End a process as the kernel does when memory is short."""
    os.kill(process, signal.SIGKILL)


def _collected(services: list[Service]) -> None:
    """Wait for the engine processes that single models had, and end the others, which would wait for more models."""
    for service in services:
        place = service._backend._place  # type: ignore[attr-defined] # a link's
        for child in place._children if place else []:
            if place._shared:
                child.kill()
            child.wait(LIMIT_S)


class SharedEngine:
    """One engine process for many tests, each of which loads models of its own into it and unloads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def served(self, given: dict[str, str], scenario: Callable[[Caller], Awaitable[Any]]) -> Any:
        """Do as `handler_calls.served`, with the model in the engine process."""

        async def run() -> Any:
            link = Link(CODE, os.getpid())
            service = Service(Output, link)
            first = Input()
            first.properties = {**given, "shared": "true"}
            try:
                await service.handle(first)
                return await asyncio.wait_for(scenario(Caller(service)), LIMIT_S)
            finally:
                service.close()
                await asyncio.sleep(0)
                self._children += link._place._children if link._place else []

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cohost_place, "tempfile", SimpleNamespace(gettempdir=lambda: str(self._folder)))
            patch.setenv("TMPDIR", str(self._folder))
            return asyncio.run(run())

    def close(self) -> None:
        """End it."""
        for child in self._children:
            child.kill()
            child.wait(LIMIT_S)


def linked(scenario: Callable[..., Awaitable[Any]], *models: dict[str, str], server: int, folder: Path = CODE) -> Any:
    """Loads models in an engine process, lets a scenario call them, and unloads them."""

    async def run() -> Any:
        services: list[Service] = []
        try:
            for given in models:
                services.append(service := Service(Output, Link(folder, server)))
                first = Input()
                first.properties = dict(given)
                await service.handle(first)
            return await asyncio.wait_for(scenario(*map(Caller, services)), LIMIT_S)
        finally:
            for service in services:
                service.close()
            # The tasks of closed links end, so that the loop has nothing left to complain of.
            await asyncio.sleep(0)
            await asyncio.to_thread(_collected, services)

    return asyncio.run(run())
