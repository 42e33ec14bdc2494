"""The proxy process's side of the engine process: start it, load the model in it, run requests, replace it if it ends.

A proxy that finds no engine process starts one, and holds a file lock while it does so. When the engine process ends,
for any reason, its proxies start another one, load their models again and send the unanswered requests a second time.
DJL Serving does not notice the replacement. A request that was running when an engine process ended, twice, is not sent
a third time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import socket
import time
from dataclasses import astuple, dataclass
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
)
from .cohost_host import Journal
from .cohost_memory import NoDeviceError
from .cohost_place import Place
from .cohost_tokenizer import Encoded
from .cohost_watchdog import LOST_DEVICE_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .cohost_frames import Outcome, TokenSequence
    from .cohost_options import Options
    from .cohost_request import Cut
    from .cohost_texts import Text

logger = logging.getLogger(__name__)

PAUSES_S: Final = (0.2, 1.0, 5.0, 10.0, 20.0, 40.0)
"""Pauses after failed loads, in seconds; the last repeats. Another model may free its memory meanwhile."""

_MOST_WAITING: Final = 4096
_MOST_DEATHS_IN_A_LOAD: Final = 3
_MOST_HARD_FAILURES: Final = 3
_FAULT_CODE: Final = 1
_MOST_ATTEMPTS: Final = 100
_PAUSE_AFTER_END_S: Final = 0.05
_MOST_DEATHS_OF_A_REQUEST: Final = 2
_ERRORS: Final = {
    error.status: error for error in (BadInputError, TooLargeError, ModelError, BusyError, MemoryExhaustedError)
}
_KINDS: Final = {"value": ValueError, "memory": MemoryError, "lost": NoDeviceError}


class EngineEndedError(Exception):
    """The engine process ended while it was loading the model."""


@dataclass(eq=False, slots=True)
class _Call:
    """A message that waits for an answer; `deaths` counts the engine processes that ended while they ran the call."""

    head: dict[str, Any]
    body: Sequence[bytes]
    limit: float
    arrived: float
    answer: asyncio.Future[tuple[dict[str, Any], bytes]]
    deaths: int = 0

    def packed(self) -> bytes:
        """Return the message with its present age; a request that may have ended an engine process gets level ALONE."""
        head = {**self.head, "age_s": time.monotonic() - self.arrived}
        if self.deaths and "level" in head:
            head["level"] = Level.ALONE
        return pack(head, *self.body)


class Link:
    """The connection of a proxy process to its model in an engine process.

    `load` is called in a thread, everything else in the event loop.
    """

    def __init__(self, folder: Path, server: int | None = None, end_process: Callable[[int], None] = os._exit) -> None:
        """Prepare for the model whose files are in `folder`; `server` is the server's process id.

        Without `server`, the parent of this process is the server. `end_process` ends this process with an exit code.
        """
        self._folder = folder
        self._end_process = end_process
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
        self._closed = False
        self._keeping: asyncio.Task[None] | None = None
        self.starts = 0

    def load(self, properties: Mapping[str, Any], options: Options) -> tuple[Facts, str]:
        """Load the model in the engine process; return its facts and its tokenizer's JSON.

        Raises:
            ValueError: the options are wrong or the model cannot be served.
            MemoryError: memory ran out.
            EngineEndedError: the engine process ended three times while it loaded the model.
            Exception: any other reason for which the model cannot be loaded.
        """
        self._properties = {name: str(value) for name, value in properties.items()}
        self._place = Place(self._folder, options, self._server)
        self._first, text = self._opened(Rank.NEW)
        return Facts.of(self._first[1]["facts"]), text

    def begin(self) -> None:
        """Begin to send requests to the engine process; called in the event loop."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep())
        self._keeping.add_done_callback(self._end_after_fault)

    def _end_after_fault(self, keeping: asyncio.Task[None]) -> None:
        """End this process if the task that serves its connection failed, since no call would be answered any more."""
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            logger.critical("the connection to the engine process failed", exc_info=error)
            self._end_process(_FAULT_CODE)

    def close(self) -> None:
        """Close the connection, which unloads the model from the engine process."""
        self._closed = True
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
        """Return the model's counters from the engine process, and that process's id and number of models.

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
        """Refuse a call that would time out before the new engine process has loaded the model."""
        if self._failure is not None:
            raise BusyError(self._failure)
        if self._lost_at and self._lost_at + self._load_s > call.limit:
            raise BusyError("the engine process is being replaced; fix: send the request again in some seconds")

    def _hurry(self) -> None:
        """Tell the engine process that a caller waits for this model, so that the engine process loads it earlier."""
        if self._socket is not None and not self._hurried:
            self._hurried = True
            with contextlib.suppress(OSError):
                self._socket.sendall(pack({"op": "hurry"}))

    async def _keep(self) -> None:
        """Serve the connection; whenever the connection ends, load the model again and serve the new connection."""
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
        """Send the unanswered calls, then receive answers until the engine process closes the connection."""
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
        """Add 1 to `deaths` of the calls that an ended engine process ran; without its journal, of all calls."""
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
        """Load the model again, with growing pauses between attempts; give waiting calls the reason of a failure.

        Some failures may need another instance: torch finds no GPU, or the engine process ends again and again. After
        three of these in a row, this process ends, too: DJL Serving restarts it `retry_threshold` times, and then
        SageMaker replaces the instance.
        """
        hard_failures = 0
        for pause_s in itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1])):
            self._hurried = any(not call.answer.done() for call in self._calls.values())
            try:
                rank = Rank.AWAITED if self._hurried else Rank.AGAIN
                self._first, _ = await asyncio.to_thread(self._opened, rank)
            except EngineEndedError as error:
                # It may have ended because of another model, so the calls wait for the next attempt until their limit.
                logger.warning("the model cannot be loaded again at present: %s", error)
                hard_failures += 1
            except Exception as error:  # noqa: BLE001 - any failure of a load is reported to callers
                self._failure = (
                    f"the model cannot be loaded again ({reason_of(error)}); the next attempt begins within "
                    f"{pause_s:g} s"
                )
                logger.warning("%s", self._failure)
                hard_failures = hard_failures + 1 if isinstance(error, NoDeviceError) else 0
            else:
                return
            for call in self._calls.values():
                if self._failure is not None and not call.answer.done():
                    call.answer.set_exception(BusyError(self._failure))
            await asyncio.sleep(pause_s)
            self._failure = None
            if hard_failures >= _MOST_HARD_FAILURES:
                self._end_process(LOST_DEVICE_CODE)

    def _opened(self, rank: Rank) -> tuple[tuple[socket.socket, dict[str, Any]], str]:
        """Load the model over a new connection; return the connection, the engine process's answer, and the tokenizer.

        Raises:
            Exception: see `load`.
        """
        assert self._place is not None  # noqa: S101 - `load` has set it
        ended: set[int] = set()
        for attempt in range(_MOST_ATTEMPTS):
            self._place.reap()
            started = time.monotonic()
            connection = self._socket = self._place.connect()
            process = check_peer(connection, os.geteuid()) or attempt
            try:
                if rank is Rank.AGAIN and self._calls:
                    rank = Rank.AWAITED
                connection.sendall(pack({"op": "load", "properties": self._properties, "rank": rank}))
                head, body = receive(connection)
            except (ConnectionError, FrameError) as error:
                logger.warning("engine process %d ended while it loaded the model: %s", process, error)
                connection.close()
                # A process that is ending may take connections for a moment, so processes count, not connections.
                ended.add(process)
                if len(ended) == _MOST_DEATHS_IN_A_LOAD:
                    break
                time.sleep(_PAUSE_AFTER_END_S)
                continue
            if head["op"] != "loaded" or self._closed:
                connection.close()
                raise _KINDS.get(head.get("kind", ""), RuntimeError)(one_line(head.get("text", "closed")))
            # The first load may have waited for those of other models.
            self._load_s = min(self._load_s, time.monotonic() - started)
            return (connection, head), body.decode()
        raise EngineEndedError(f"the engine process ended {len(ended)} times while it loaded the model")
