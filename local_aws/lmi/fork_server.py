"""The container's side of the process that workers are forked from (worker/zygote.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections import deque
from typing import Any

from local_aws.lmi.faults import EngineFailure

# One thread a worker, as the image's start script sets; also what makes forking safe. Nothing may ask the network.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_GONE = "the process that workers are forked from has ended; see the container's log"


class ForkServer:
    """Starts worker processes; `start` returns before the heavy imports are done, the first `fork` waits for them."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: deque[asyncio.Future[tuple[int, asyncio.Future[int]]]] = deque()
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the process."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "local_aws.lmi.worker.zygote", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=_ENVIRONMENT | {**os.environ},
            )
        self._control = ours
        self._reading = asyncio.create_task(self._read(ours))

    async def fork(self) -> tuple[int, socket.socket, asyncio.Future[int]]:
        """A new worker: its pid, the socket to talk to it, and its exit code once it ends.

        Raises:
            EngineFailure: the process that forks has ended.
        """
        await asyncio.shield(self._ready)
        if self._control is None or self._reading is None or self._reading.done():
            raise EngineFailure(_GONE)
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        answer: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        with theirs:
            socket.send_fds(self._control, [b'{"op": "fork"}\n'], [theirs.fileno()])
        self._asked.append(answer)
        try:
            pid, exited = await answer
        except BaseException:
            ours.close()
            raise
        return pid, ours, exited

    def kill(self, pid: int) -> None:
        """Ends a worker at once. Asking its parent cannot hit another process that got the same number."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"op": "kill", "pid": pid}).encode() + b"\n")

    async def stop(self) -> None:
        """Ends the process and every worker."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, control: socket.socket) -> None:
        reader, _ = await asyncio.open_connection(sock=control.dup())
        while line := await reader.readline():
            self._take(json.loads(line))
        # Whoever waits goes on, and finds the process gone.
        if not self._ready.done():
            self._ready.set_result(None)
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(EngineFailure(_GONE))

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(None)
        elif "pid" in message:
            self._forked(message["pid"])
        else:
            exited = self._exits.pop(message["exited"])
            if not exited.done():
                exited.set_result(message["code"])

    def _forked(self, pid: int) -> None:
        exited = self._exits[pid] = asyncio.get_running_loop().create_future()
        answer = self._asked.popleft()
        if answer.done():  # nobody waits for this worker any more
            self.kill(pid)
        else:
            answer.set_result((pid, exited))
