"""The container's side of the process that workers are forked from (zygote.py)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from local_aws.lmi.errors import EngineFailure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


logger = logging.getLogger(__name__)

# What makes forking safe (no threads of OpenBLAS), and what keeps every worker from asking the network.
_FORCED = {
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
# One thread per worker, as the image's start script sets. Where there are more, those that wait give up their core, for
# models share the machine's and spinning threads slow the others down several times.
_DEFAULTS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TRANSFORMERS_VERBOSITY": "error"}
_GONE = "the process that workers are forked from has ended; see the container's log"
_LEAST_LIFE_S = 60.0
_FIRST_SOCKET = 19000
CONFIG_FILE: Final = "config.properties"
HUB_CACHE: Final = "huggingface"
"""The folder below a container's own that its workers take for the cache of the Hugging Face Hub (HF_HUB_CACHE)."""
_KILLED = -9


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkedProcess:
    """A worker that runs: the folder of its model, and when it was forked, in seconds since the epoch."""

    model_dir: str
    started: float = field(default_factory=time.time)


class ForkServer:
    """The process that worker processes are forked from.

    `start` returns before its heavy imports are done, `fork` waits for them. The process is started again when it dies,
    unless it has just been started. `loaded` are the pids of the workers that have loaded their models and still run.
    """

    def __init__(self, folder: Path) -> None:
        """Take the container's own folder, with the config.properties that handlers find by --config-file."""
        self.loaded: set[int] = set()
        self._folder = folder
        self._numbers = itertools.count(_FIRST_SOCKET)
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready = asyncio.Event()
        self._ended = False
        self._pending_forks: deque[tuple[str, asyncio.Future[tuple[int, asyncio.Future[int]]]]] = deque()
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._workers: dict[int, ForkedProcess] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def workers(self) -> Mapping[int, ForkedProcess]:
        """Return every worker process that has not ended, by pid, in the order of their start."""
        return self._workers

    async def start(self) -> None:
        """Start the process."""
        self._control = await self._spawn()
        self._watching = asyncio.create_task(self._watch(self._control))

    def sock_name(self) -> str:
        """Give the next name in the order and form of the real server's sockets; here no socket lies there."""
        return str(self._folder / f"djl_sock.{next(self._numbers)}")

    async def fork(self, model_dir: str = "") -> tuple[int, socket.socket, asyncio.Future[int]]:
        """Fork a worker for a model's folder; return its pid, the socket to it, and its exit code once it ends.

        Raises:
            EngineFailure: the process that forks cannot be kept running.
        """
        try:
            return await self._fork(model_dir)
        except EngineFailure:
            # It died just then; its replacement gets a second try.
            return await self._fork(model_dir)

    async def _fork(self, model_dir: str) -> tuple[int, socket.socket, asyncio.Future[int]]:
        await self._ready.wait()
        if self._control is None or self._ended:
            raise EngineFailure(_GONE)
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        answer: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        self._pending_forks.append((model_dir, answer))
        try:
            with theirs:
                socket.send_fds(self._control, [b'{"op": "fork"}\n'], [theirs.fileno()])
            pid, exited = await answer
        except OSError as error:
            ours.close()
            self._pending_forks.remove((model_dir, answer))
            # The news of its death is on the way; until it is here the event would let the second try through.
            self._ready.clear()
            raise EngineFailure(_GONE) from error
        except BaseException:
            ours.close()
            raise
        return pid, ours, exited

    def kill(self, pid: int) -> None:
        """End a worker at once. Asking its parent cannot hit another process that got the same number."""
        self._workers.pop(pid, None)
        self.loaded.discard(pid)
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"op": "kill", "pid": pid}).encode() + b"\n")

    async def stop(self) -> None:
        """End the process and every worker."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._lose_process()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _spawn(self) -> socket.socket:
        """Start the process; return the socket to it."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "local_aws.lmi.workers.zygote", str(theirs.fileno())),
                *("--config-file", str(self._folder / CONFIG_FILE)),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=_DEFAULTS | {**os.environ} | _FORCED | {"HF_HUB_CACHE": str(self._folder / HUB_CACHE)},
            )
        return ours

    async def _watch(self, control: socket.socket) -> None:
        """Read the process's messages, and start it again when it has died after some time."""
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            imported = await self._read(control)
            self._ready.clear()
            self._lose_process()
            if clock() - started < _LEAST_LIFE_S and not imported:
                break
            logger.warning("the process that workers are forked from has died; starting it again")
            control = self._control = await self._spawn()
        self._ended = True
        self._ready.set()

    async def _read(self, control: socket.socket) -> bool:
        """Read until the process has ended; return True if its imports had succeeded."""
        reader, writer = await asyncio.open_unix_connection(sock=control.dup())
        imported = False
        try:
            while line := await reader.readline():
                imported = True
                self._handle(json.loads(line))
        except ConnectionError:
            logger.warning("the connection to the process that workers are forked from broke")
        finally:
            writer.close()
        return imported

    def _lose_process(self) -> None:
        """Fail all waiting callers: the process has ended, and its workers with it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for _, answer in self._pending_forks:
            if not answer.done():
                answer.set_exception(EngineFailure(_GONE))
        self._pending_forks.clear()
        for exited in self._exits.values():
            if not exited.done():
                exited.set_result(_KILLED)
        self._exits.clear()
        self.loaded.clear()
        self._workers.clear()

    def _handle(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set()
        elif "pid" in message:
            self._forked(message["pid"])
        else:
            self.loaded.discard(message["exited"])
            self._workers.pop(message["exited"], None)
            exited = self._exits.pop(message["exited"], None)
            if exited is not None and not exited.done():
                exited.set_result(message["code"])

    def _forked(self, pid: int) -> None:
        exited = self._exits[pid] = asyncio.get_running_loop().create_future()
        model_dir, answer = self._pending_forks.popleft()
        self._workers[pid] = ForkedProcess(model_dir=model_dir)
        if answer.done():  # the caller that requested this worker has ended
            self.kill(pid)
        else:
            answer.set_result((pid, exited))
