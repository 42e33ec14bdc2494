"""The way from a proxy process to its engine process: start it, load the model there, run requests, survive its end.

The proxy that finds no engine process starts one, under a file lock. When the engine process ends, whatever the cause,
its proxies start the next one, load their models again and send the unanswered requests once more. The server sees
none of this. A request that was being run at the end of two engine processes is not sent a third time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import math
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .cohost_errors import (
    BadInputError,
    BusyError,
    HandlerError,
    MemoryExhaustedError,
    ModelError,
    TooLargeError,
    one_line,
    reason_of,
)
from .cohost_facts import Facts
from .cohost_frames import (
    FrameError,
    Level,
    Rank,
    check_peer,
    outcome_of,
    pack,
    packed_sequences,
    read,
    receive,
    short_address,
)
from .cohost_host import Journal, Settings
from .cohost_restart import started_at
from .cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .cohost_frames import Outcome, TokenSequence
    from .cohost_options import Options
    from .cohost_request import Cut
    from .cohost_texts import Text

logger = logging.getLogger(__name__)

PAUSES_S: Final = (0.2, 1.0, 5.0, 10.0, 20.0, 40.0)
"""Pauses after failed loads, in seconds; the last repeats. Another model may free its memory meanwhile."""

_IDLE_S: Final = 30.0
_START_S: Final = 60.0
_LOCK_LOOK_S: Final = 0.02
_MOST_WAITING: Final = 4096
_MOST_DEATHS_IN_A_LOAD: Final = 2
_MOST_DEATHS_OF_A_REQUEST: Final = 2
_ERRORS: Final = {
    error.status: error for error in (BadInputError, TooLargeError, ModelError, BusyError, MemoryExhaustedError)
}
_KINDS: Final = {"value": ValueError, "memory": MemoryError}
# Threads that wait for work give up their core, and the memory of a GPU grows in place; both are read when torch is
# imported. Measured on two busy cores: with threads that spin, one text at a time ran at 9 items/s instead of 41.
_ENVIRONMENT: Final = {"OMP_WAIT_POLICY": "PASSIVE", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
_OLDER_NAME: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class EngineEndedError(Exception):
    """The engine process ended while the model was being loaded there."""


class Place:
    """The place of an engine process: a folder that only this user can open, and the names of the files in it.

    Shared models of one server, device and handler version have one place; a worker of any other model has its own.
    """

    def __init__(self, folder: Path, options: Options, server: int) -> None:
        self._code = folder
        self._shared = options.shared
        self._server = server
        self._server_started = started_at(server)
        device = "cpu" if options.device == "cpu" else str(options.device_id)
        parts = [device, *(_digest(file) for file in sorted(folder.glob("cohost_*.py")))]
        if not options.shared:
            parts += [str(os.getpid()), str(started_at(os.getpid()))]
        self._name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        self._engines = options.engines_per_device if options.shared else 1
        self._engine: int | None = 0 if self._engines == 1 else None
        self._children: list[subprocess.Popen[bytes]] = []

    def connect(self) -> socket.socket:
        """Return a connection to the engine process, which is started if none listens.

        Raises:
            OSError: the engine process cannot be started, or does not listen within a minute.
        """
        if self._engine is None:
            self._engine = self._chosen_engine()
        settings = self._settings()
        with contextlib.suppress(OSError):
            return _connected(settings)
        with _locked(Path(settings.folder, f"{settings.name}.lock")):
            with contextlib.suppress(OSError):
                return _connected(settings)
            _sweep(Path(settings.folder))
            return self._started(settings)

    def _chosen_engine(self) -> int:
        """Return the number of the engine process with the fewest models; a file lists the choices of all proxies."""
        choices = Path(_own_folder(), f"{self._server}-{self._server_started}-{self._name}.choices")
        with _locked(choices.with_suffix(".lock")):
            try:
                listed = json.loads(choices.read_bytes())
            except (OSError, ValueError):
                listed = []
            living = [
                [process, started, number] for process, started, number in listed if started_at(process) == started
            ]
            taken = Counter(number for _, _, number in living)
            chosen = min(range(self._engines), key=lambda number: taken[number])
            living.append([os.getpid(), started_at(os.getpid()), chosen])
            choices.write_text(json.dumps(living), encoding="ascii")
        return chosen

    def reap(self) -> None:
        """Collect the exit codes of the engine processes that this process has started, and log them."""
        for child in list(self._children):
            if child.poll() is not None:
                self._children.remove(child)
                logger.warning("engine process %d ended with code %d", child.pid, child.returncode)

    def _settings(self) -> Settings:
        return Settings(
            folder=str(_own_folder()),
            name=f"{self._server}-{self._server_started}-{self._name}-{self._engine}",
            server=self._server,
            server_started=self._server_started,
            shared=self._shared,
            idle_s=_IDLE_S,
        )

    def _started(self, settings: Settings) -> socket.socket:
        command = [
            sys.executable,
            str(self._code / "cohost_host.py"),
            json.dumps({name: getattr(settings, name) for name in Settings.__dataclass_fields__}),
        ]
        environment = {**_ENVIRONMENT, **os.environ}
        if set(_OLDER_NAME) & os.environ.keys() == {_OLDER_NAME[1]}:
            del environment[_OLDER_NAME[0]]
        with _output(self._server) as output:
            # A session of its own, so that no signal to the worker's process group reaches the engine process.
            child = subprocess.Popen(  # noqa: S603 - this interpreter and a file of this folder
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        self._children.append(child)
        limit = time.monotonic() + _START_S
        while time.monotonic() < limit and child.poll() is None:
            with contextlib.suppress(OSError):
                return _connected(settings)
            time.sleep(_LOCK_LOOK_S)
        raise OSError(f"engine process {child.pid} does not listen, exit code {child.poll()}; its log has the reason")


@contextlib.contextmanager
def _output(server: int) -> Iterator[int | None]:
    """Yield the server's own output for the log of an engine process; None stands for that of this process.

    The output of this process is read by the server only as long as this model is loaded. A file can be shared only if
    every writer appends to it.
    """
    file = None
    with contextlib.suppress(OSError):
        path = f"/proc/{server}/fd/1"
        mode = Path(path).stat().st_mode
        flags = int(Path(f"/proc/{server}/fdinfo/1").read_text(encoding="ascii").split("flags:")[1].split()[0], 8)
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and flags & os.O_APPEND):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


def _own_folder() -> Path:
    """Return the folder of all sockets of this user, which no other user can open.

    Raises:
        OSError: the folder exists and belongs to another user, or others may open it.
    """
    folder = Path(tempfile.gettempdir(), f"cohost-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise OSError(f"{folder}: is no folder that this user alone can open; remove it")
    return folder


def _connected(settings: Settings) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(settings.socket) as address:
            connection.connect(address)
        check_peer(connection, os.geteuid())
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    limit = time.monotonic() + _START_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise OSError(f"{path}: another process has held it for {_START_S:g} s") from None
                time.sleep(_LOCK_LOOK_S)
        yield


def _sweep(folder: Path) -> None:
    """Remove the files of servers that have ended."""
    for path in folder.iterdir():
        server, _, rest = path.name.partition("-")
        if server.isdigit() and str(started_at(int(server))) != rest.partition("-")[0]:
            path.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@dataclass(eq=False, slots=True)
class _Call:
    """A message that is to be answered; `deaths` counts the engine processes that ended while they ran it."""

    head: dict[str, Any]
    body: Sequence[bytes]
    limit: float
    arrived: float
    answer: asyncio.Future[tuple[dict[str, Any], bytes]]
    deaths: int = 0

    def packed(self) -> bytes:
        """Return the message with the present age; what an engine process may have died of, runs alone."""
        head = {**self.head, "age_s": time.monotonic() - self.arrived}
        if self.deaths and "level" in head:
            head["level"] = Level.ALONE
        return pack(head, *self.body)


class Link:
    """The connection of a proxy process to its model in an engine process.

    `load` is called in a thread, everything else in the event loop.
    """

    def __init__(self, folder: Path, server: int | None = None) -> None:
        """Prepare for the model whose files are in `folder`; `server` is the server's process, else the parent's."""
        self._folder = folder
        self._server = os.getppid() if server is None else server
        self._place: Place | None = None
        self._properties: dict[str, str] = {}
        self._first: tuple[socket.socket, dict[str, Any]] | None = None
        self._socket: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._failure: str | None = None
        self._load_s = math.inf
        self._lost_at = 0.0
        self._hurried = False
        self._keeping: asyncio.Task[None] | None = None
        self.starts = 0

    def load(self, properties: Mapping[str, Any], options: Options) -> tuple[Facts, str]:
        """Load the model in the engine process; return its facts and its tokenizer's JSON.

        Raises:
            ValueError: the options are wrong or the model cannot be served.
            MemoryError: memory ran out.
            EngineEndedError: the engine process ended twice while it loaded the model.
            Exception: any other reason for which the model cannot be loaded.
        """
        self._properties = {name: str(value) for name, value in properties.items()}
        self._place = Place(self._folder, options, self._server)
        self._first, text = self._opened(Rank.NEW)
        return Facts.of(self._first[1]["facts"]), text

    def begin(self) -> None:
        """Begin to pass requests on; called in the event loop."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def close(self) -> None:
        """Close the connection, which unloads the model from the engine process."""
        if self._keeping is not None:
            self._keeping.cancel()
        for one in (self._socket, self._first[0] if self._first else None):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    async def run(self, sequences: Sequence[TokenSequence], *, level: Level, limit_s: float) -> Outcome:
        """Run the sequences of one request, within `limit_s` seconds.

        Raises:
            BusyError: the request waited too long, or the model cannot be loaded at present.
            MemoryExhaustedError: memory ran out for one sequence alone.
            ModelError: the model failed, or its engine process ended twice in this request.
        """
        heads, body = packed_sequences(sequences)
        return outcome_of(*await self._ask({"op": "run", "level": level, "sequences": heads}, body, limit_s))

    async def encode(self, texts: Sequence[Text], cut: Cut, limit_s: float) -> list[Encoded]:
        """Return texts as sequences, made by the engine process.

        Raises:
            BadInputError: a text is too long and may not be truncated, or needs a vector that the model lacks.
            BusyError: the model cannot be loaded at present.
        """
        given = {"op": "encode", "texts": [astuple(text) for text in texts], "cut": astuple(cut)}
        head, _ = await self._ask(given, (), limit_s)
        return [
            Encoded(np.asarray(ids, np.int32), None if segments is None else np.asarray(segments, np.int32), truncated)
            for ids, segments, truncated in head["value"]
        ]

    async def summary(self, limit_s: float) -> dict[str, Any]:
        """Return the model's counters in the engine process, and facts of the process.

        Raises:
            BusyError: the model cannot be loaded at present.
        """
        head, _ = await self._ask({"op": "counters"}, (), limit_s)
        value: dict[str, Any] = head["value"]
        return value

    async def _ask(self, head: dict[str, Any], body: Sequence[bytes], limit_s: float) -> tuple[dict[str, Any], bytes]:
        if len(self._calls) >= _MOST_WAITING:
            raise BusyError(f"{len(self._calls)} calls wait for the model; fix: send the request again in some seconds")
        number, now = next(self._numbers), time.monotonic()
        answer: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        call = _Call({**head, "id": number}, body, now + limit_s, now, answer)
        if self._writer is None:
            self._refuse_early(call)
        self._calls[number] = call
        try:
            if self._writer is not None:
                self._writer.write(call.packed())
            else:
                self._hurry()
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            raise BusyError(f"the request was not answered within {limit_s:g} s; send it again later") from None
        finally:
            del self._calls[number]
            if self._writer is not None and not answer.done():
                self._writer.write(pack({"op": "cancel", "id": number}))

    def _refuse_early(self, call: _Call) -> None:
        """Refuse a call that the engine process, which is being replaced, will not answer in time."""
        if self._failure is not None:
            raise BusyError(self._failure)
        if self._lost_at and self._lost_at + self._load_s > call.limit:
            raise BusyError("the engine process is being replaced; fix: send the request again in some seconds")

    def _hurry(self) -> None:
        """Tell the engine process that a caller waits for the model that it is to load."""
        if self._socket is not None and not self._hurried:
            self._hurried = True
            with contextlib.suppress(OSError):
                self._socket.sendall(pack({"op": "hurry"}))

    async def _keep(self) -> None:
        """Serve the connection; after its end, load the model again and continue."""
        while True:
            assert self._first is not None  # noqa: S101 - loaded before, here or by `load`
            (connection, head), self._first = self._first, None
            self.starts += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, FrameError):
                await self._serve(connection)
            self._writer, self._socket, self._lost_at = None, None, time.monotonic()
            logger.warning("the engine process has ended, with %d calls unanswered", len(self._calls))
            self._blame(head["client"], Journal.read(head["journal"]))
            await self._reopen()

    async def _serve(self, connection: socket.socket) -> None:
        """Send the unanswered calls, then take answers until the engine process closes the connection."""
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            self._failure, self._lost_at, self._writer = None, 0.0, writer
            for call in self._calls.values():
                writer.write(call.packed())
            while True:
                self._take(*await read(reader))
        finally:
            writer.close()

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        call = self._calls.get(head["id"])
        if call is None or call.answer.done():
            return
        if head["op"] == "refused":
            call.answer.set_exception(_ERRORS.get(head["status"], HandlerError)(head["text"]))
        else:
            call.answer.set_result((head, body))

    def _blame(self, client: int, marks: Sequence[str] | None) -> None:
        """Count the end of an engine process for the calls that it ran; without its journal, for all calls."""
        for number, call in self._calls.items():
            if marks is None or f"{client}:{number}" in marks:
                call.deaths += 1
            if call.deaths >= _MOST_DEATHS_OF_A_REQUEST and not call.answer.done():
                call.answer.set_exception(
                    ModelError("the engine process ended twice while it ran this request, so it is not tried again")
                )
            elif call.limit < self._lost_at + self._load_s and not call.answer.done():
                call.answer.set_exception(
                    BusyError("the engine process is being replaced; fix: send the request again in some seconds")
                )

    async def _reopen(self) -> None:
        """Load the model again, with growing pauses between failures; waiting calls get the reason of a failure."""
        for pause_s in itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1])):
            self._hurried = any(not call.answer.done() for call in self._calls.values())
            try:
                rank = Rank.AWAITED if self._hurried else Rank.AGAIN
                self._first, _ = await asyncio.to_thread(self._opened, rank)
            except Exception as error:  # noqa: BLE001 - any failure of a load is reported to callers
                self._failure = (
                    f"the model cannot be loaded again ({reason_of(error)}); the next attempt begins within "
                    f"{pause_s:g} s"
                )
                logger.warning("%s", self._failure)
            else:
                return
            for call in self._calls.values():
                if not call.answer.done():
                    call.answer.set_exception(BusyError(self._failure))
            await asyncio.sleep(pause_s)
            self._failure = None

    def _opened(self, rank: Rank) -> tuple[tuple[socket.socket, dict[str, Any]], str]:
        """Load the model over a new connection; return that with the engine process's answer, and the tokenizer.

        Raises:
            Exception: see `load`.
        """
        assert self._place is not None  # noqa: S101 - `load` has set it
        for attempt in itertools.count(1):
            self._place.reap()
            started = time.monotonic()
            try:
                connection = self._socket = self._place.connect()
                if rank is Rank.AGAIN and self._calls:
                    rank = Rank.AWAITED
                connection.sendall(pack({"op": "load", "properties": self._properties, "rank": rank}))
                head, body = receive(connection)
            except (ConnectionError, FrameError) as error:
                logger.warning("the engine process ended while it loaded the model: %s", error)
                if attempt > _MOST_DEATHS_IN_A_LOAD:
                    problem = f"the engine process ended {attempt} times while it loaded the model"
                    raise EngineEndedError(problem) from None
                continue
            if head["op"] != "loaded":
                connection.close()
                raise _KINDS.get(head["kind"], RuntimeError)(one_line(head["text"]))
            # The first load may have waited for those of other models.
            self._load_s = min(self._load_s, time.monotonic() - started)
            return (connection, head), body.decode()
        raise AssertionError
