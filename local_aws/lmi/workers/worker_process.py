"""The process of one worker: its start, the calls to it, and its replacement after its end.

If the process of a synchronous worker dies while idle, no new one is started. The death or slowness of a synchronous
worker's process during a request counts as a failure. For an asynchronous worker every end of its process counts as a
failure, even if the server stopped it, and the worker restarts its process itself. If the start of an asynchronous
worker fails after the handler's import, the worker is locked for ever, because two threads of the real server wait for
each other.

Source: DJL Serving 0.36.0 (PyProcess, PyPredictor, Connection), recorded (tests/data/djl_lifecycle). Of 20 failing
first starts of asynchronous workers on a real server, two were answered, as every failing start of a synchronous worker
is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from local_aws.lmi.errors import BackendStopped, EngineFailure, Fault, WorkerFailure
from local_aws.lmi.workers.connection import DISCONNECTED

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from local_aws.lmi.settings import ServerRules
    from local_aws.lmi.workers.connection import Content, Frame, WorkerConnection
    from local_aws.lmi.workers.starter import WorkerStarter


logger = logging.getLogger(__name__)

_TIMEOUT = "java.util.concurrent.TimeoutException"
_UNRECOVERABLE = "Backend Python process is unrecoverable. Initiating worker termination"


class Failures:
    """The count of failures of all workers that a model has had, and its comparison with `retry_threshold`."""

    def __init__(self, threshold: int | None, rules: ServerRules) -> None:
        """Start the count at 0; `threshold` is the model's; if None, the container's threshold in `rules` applies."""
        self.count = 0
        self._threshold = rules.retry_threshold if threshold is None else threshold
        self._rules = rules

    @property
    def exceeded(self) -> bool:
        """Return True if there were more failures than the model's threshold."""
        return self.count > self._threshold

    @property
    def final(self) -> bool:
        """Return True if the model has failed permanently; always False with SERVING_HEALTH_CHECK_OVERRIDE."""
        return self.exceeded and not self._rules.health_check_override

    @property
    def ends_server(self) -> bool:
        """Return True if the server must end when the model's status is next read."""
        return self.exceeded and self._rules.fail_fast


class WorkerProcess:
    """The process of one worker and the processes that replace it; all have the same socket name.

    `ready` is True if the process runs and has loaded the model; `pid` is the id of the last process. `locked` is True
    after a failed start that leaves the process neither stoppable nor startable.
    """

    def __init__(self, starter: WorkerStarter, failures: Failures, rules: ServerRules, *, asynchronous: bool) -> None:
        """Prepare the worker; start no process yet. An asynchronous worker's process is restarted whenever it ends."""
        self.pid = 0
        self.ready = False
        self._starter = starter
        self._failures = failures
        self._rules = rules
        self._asynchronous = asynchronous
        self._restarts = False
        self._sock_name = starter.sock_name()
        self._connection: WorkerConnection | None = None
        self._loss_pending = False
        self.locked = False
        self._unrecoverable = False
        self._ended = False
        # This lock keeps starts and stops apart; in the deadlock of the real server it is never released.
        self._transition = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """Return True if the worker has a process, is starting one, or can still start one."""
        return not self._ended and (self._connection is not None or self._loss_pending or bool(self._tasks))

    async def start(self) -> None:
        """Start a process of the worker, which loads the model.

        The call never returns if an asynchronous handler fails in its first call, by an error or the process's end.

        Raises:
            EngineFailure: the process could not be started, or a synchronous handler's first call failed.
            EngineOutOfMemory: a synchronous handler ran out of memory.
        """
        async with self._transition:
            await self._launch()
            connection = self._connected()
            try:
                await self._load()
            except Fault as fault:
                if self._asynchronous:
                    await self._lock(connection, fault)
                self._drop()
                self._failures.count += 1
                raise
            except BaseException:
                self._drop()
                raise

    async def stop(self) -> None:
        """End the process; an asynchronous worker's restarts at once, in no model's list, as in the real server."""
        async with self._transition:
            self._drop()

    async def interrupt(self) -> None:
        """End the process during a synchronous call, which counts as a failure; a new process starts and stays."""
        self._failures.count += 1
        await self.stop()
        self._in_background(self._start_replacement())

    def end(self) -> None:
        """End the process without a restart, because the server itself ends."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        self._drop()

    async def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it has ended.

        Raises:
            WorkerFailure: the worker has no process.
        """
        connection = self._connected()
        self._starter.kill(self.pid)
        await connection.lost.wait()

    def inject(self, fault: str) -> None:
        """Inject a fault, "hang" or "lose_device", into every later forward pass; see handler_runner.py.

        Raises:
            WorkerFailure: the worker has no process.
        """
        self._connected().send_order({"fault": fault})

    def check_ready(self) -> None:
        """Check that the process can take a request.

        Raises:
            EngineFailure: a restart has failed, after which the worker ends.
            BackendStopped: the worker has no process, or its process is loading the model.
        """
        if self._unrecoverable:
            raise EngineFailure(_UNRECOVERABLE)
        if not self.ready or not self._connected().connected:
            raise BackendStopped

    async def ask(self, properties: dict[str, str], contents: Sequence[Content], timeout_s: float) -> Frame:
        """Return a synchronous handler's answer to a request.

        Raises:
            WorkerFailure: the process died or was too slow; a new process loads the model, and is then stopped.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connected().ask(properties, contents)
        except TimeoutError:
            failure = WorkerFailure(_TIMEOUT)
        except WorkerFailure as died:
            failure = died
        self._failures.count += 1
        self._drop()
        self._in_background(self._start_replacement())
        # The start of the new process has to begin before any stop of the worker.
        await asyncio.sleep(0)
        raise failure

    def call(
        self, properties: dict[str, str], contents: Sequence[Content], take: Callable[[Frame | None], bool]
    ) -> None:
        """Pass a request to an asynchronous handler, after `check_ready`; WorkerConnection.call describes `take`."""
        self._connected().call(properties, contents, take)

    async def _launch(self) -> None:
        self.ready = False
        try:
            self.pid, self._connection = await self._starter.launch(self._sock_name, self._lost)
        except Fault:
            self._failures.count += 1
            raise

    async def _load(self) -> None:
        connection = self._connected()
        await self._starter.load(self.pid, connection)
        self.ready = connection.connected
        self._restarts = self._asynchronous

    def _drop(self) -> None:
        """Close the socket, which calls `_lost`, and kill the process."""
        self.ready = False
        connection, self._connection = self._connection, None
        if connection is not None:
            self._loss_pending = connection.connected
            connection.close()
            self._starter.kill(self.pid)

    def _lost(self) -> None:
        """Record that the process has ended; if the worker is asynchronous, start a process again."""
        self.ready = self._loss_pending = False
        logger.warning("process %d of a worker has ended", self.pid)
        if self._restarts and not self._ended:
            self._in_background(self._restart())

    async def _restart(self) -> None:
        async with self._transition:
            self._drop()
            self._failures.count += 1
        async with self._transition:
            await asyncio.sleep(self._rules.interpreter_s)
            try:
                await self._launch()
            except Fault as fault:
                logger.warning("a restart has failed: %s", fault)
                return
            connection = self._connected()
            try:
                await self._load()
            except Fault as fault:
                await self._lock(connection, fault)

    async def _lock(self, connection: WorkerConnection, fault: Fault) -> None:
        """Hold `_transition` for ever: in the real server, stop, start and socket wait in a circle for each other."""
        logger.error("an asynchronous handler failed in its first call, which locks its worker for good: %s", fault)
        self.locked = True
        if connection.connected:
            self._unrecoverable = True
            self._failures.count += 1
        self._restarts = False
        self._drop()
        await asyncio.get_running_loop().create_future()

    async def _start_replacement(self) -> None:
        """Start a process in place of the one whose synchronous call failed, although the worker itself ends."""
        try:
            await self.start()
        except Fault as fault:
            logger.warning("a restart has failed: %s", fault)

    def _connected(self) -> WorkerConnection:
        if self._connection is None:
            raise WorkerFailure(DISCONNECTED)
        return self._connection

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
