"""The container's side of the zygote, the process that workers are forked from (zygote.py)."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from local_aws.lmi.errors import EngineFailure
from local_aws.lmi.workers.faults import sitecustomize
from local_aws.lmi.workers.faults.sitecustomize import ENABLED

if TYPE_CHECKING:
    from collections.abc import Mapping


logger = logging.getLogger(__name__)

# Variables that make forking safe (no threads of OpenBLAS), and that keep workers from asking the network.
_FORCED = {
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    ENABLED: "1",
}
# One thread per worker, as the image's start script sets. If a model sets more, waiting threads give up their core:
# models share the machine's cores, and spinning threads slow the others down several times.
_DEFAULTS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TRANSFORMERS_VERBOSITY": "error"}
# Python imports the module sitecustomize of this folder at the start of each process.
_FAULTS = Path(sitecustomize.__file__).parent
_GONE = "the process that workers are forked from has ended; see the container's log"
_LEAST_LIFE_S = 60.0
_FIRST_SOCKET = 19000
CONFIG_FILE: Final = "config.properties"
HUB_CACHE: Final = "huggingface"
"""The subfolder of a container's folder that its workers use as cache of the Hugging Face Hub (HF_HUB_CACHE)."""
_KILLED = -9


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkedProcess:
    """A running worker process: the folder of its model, and the time of its fork, in seconds since 1970."""

    model_dir: str
    started: float = field(default_factory=time.time)


class ForkServer:
    """The zygote, the process that worker processes are forked from, as the container sees it.

    `start` returns before the zygote's heavy imports are done; `fork` waits for these imports. A zygote that dies is
    started again, unless it died within a minute and before its imports were done. `loaded` are the pids of the running
    workers that have loaded their models.
    """

    def __init__(self, folder: Path) -> None:
        """Keep the container's folder, which holds the config.properties that handlers find by --config-file."""
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
        """Return every running worker process by pid, in the order of their start."""
        return self._workers

    def started_by_workers(self) -> set[int]:
        """Return the pids of processes that workers, also ended ones, have started, such as engine processes.

        Such a process is found by the variable HF_HUB_CACHE, which it inherits; the variable's value is unique to this
        container.
        """
        mine = str(self._folder / HUB_CACHE)
        own = {*self._workers} | (set() if self._process is None else {self._process.pid})
        found = set()
        for process in psutil.process_iter():
            # The process may have ended meanwhile, or be another user's.
            with contextlib.suppress(psutil.Error):
                if process.pid not in own and process.environ().get("HF_HUB_CACHE") == mine:
                    found.add(process.pid)
        return found

    async def start(self) -> None:
        """Start the zygote."""
        self._control = await self._spawn()
        self._watching = asyncio.create_task(self._watch(self._control))

    def sock_name(self) -> str:
        """Return the next socket name, numbered as in the real server; in the emulator no socket has this name."""
        return str(self._folder / f"djl_sock.{next(self._numbers)}")

    async def fork(self, model_dir: str = "") -> tuple[int, socket.socket, asyncio.Future[int]]:
        """Fork a worker for a model's folder; return its pid, the socket to it, and a future of its exit code.

        Raises:
            EngineFailure: the zygote cannot be kept running.
        """
        try:
            return await self._fork(model_dir)
        except EngineFailure:
            # The zygote died during the fork; its replacement gets a second try.
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
            # `_watch` has yet to see the zygote's death; until then `_ready` would let the second try through.
            self._ready.clear()
            raise EngineFailure(_GONE) from error
        except BaseException:
            ours.close()
            raise
        return pid, ours, exited

    def kill(self, pid: int) -> None:
        """Kill a worker. The zygote, its parent, sends the signal, so a reused pid cannot hit another process."""
        self._workers.pop(pid, None)
        self.loaded.discard(pid)
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"op": "kill", "pid": pid}).encode() + b"\n")

    async def stop(self) -> None:
        """End the zygote and every worker."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._lose_process()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _spawn(self) -> socket.socket:
        """Start the zygote's process; return the socket to it."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "local_aws.lmi.workers.zygote", str(theirs.fileno())),
                *("--config-file", str(self._folder / CONFIG_FILE)),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment(),
            )
        return ours

    def _environment(self) -> dict[str, str]:
        path = [str(_FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"HF_HUB_CACHE": str(self._folder / HUB_CACHE), "PYTHONPATH": os.pathsep.join(path)}
        return _DEFAULTS | {**os.environ} | _FORCED | own

    async def _watch(self, control: socket.socket) -> None:
        """Read the zygote's messages, and start it again when it dies, unless its imports failed within a minute."""
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
        """Read the zygote's messages until it has ended; return True if its imports had succeeded."""
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
        """Fail all waiting callers, because the zygote and with it all workers have ended."""
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
