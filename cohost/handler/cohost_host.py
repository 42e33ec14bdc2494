"""The program of an engine process: it loads and runs the models of the proxy processes that connect to it.

    python cohost_host.py SETTINGS        where SETTINGS is a JSON object with the fields of `Settings`

One connection is one model: the proxy's first message loads the model, and the end of the connection unloads it. The
engine process ends with the server, or some seconds after its last model was unloaded. The engine process listens
before it imports torch. So the `load` messages of all proxies have arrived when the engine process chooses the first
model to load.

Everything is imported before the first model is served: the files of this program lie in the folder of one model, which
may be unloaded and its folder deleted while other models are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

_PACKAGE: Final = "cohost_handler"

if __name__ == "__main__":
    # Python put this file's folder first on the search path, where its modules could hide others.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    _package = ModuleType(_PACKAGE)
    _package.__path__ = [str(Path(__file__).parent)]
    sys.modules[_PACKAGE] = _package
    __package__ = _PACKAGE

from .cohost_errors import HandlerError, one_line
from .cohost_frames import FrameError, Level, Rank, check_peer, pack, packed_outcome, read, sequences_of, short_address
from .cohost_memory import is_lost_device, is_out_of_memory
from .cohost_request import Cut
from .cohost_restart import started_at
from .cohost_texts import Text
from .cohost_watchdog import LOST_DEVICE_CODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .cohost_hosted import Home, Hosted

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOOK_S: Final = 1.0
_FLUSH_S: Final = 0.2
_READ_S: Final = 10.0
_JOURNAL_LENGTH: Final = 8
_OOM_SCORE: Final = "1000"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of an engine process.

    The socket is `<name>.sock` in `folder`. `server` is the process id of DJL Serving, and `server_started` its start
    in clock ticks since boot. With `shared`, the process loads the models of several proxies. After `idle_s` seconds
    without a model, the process ends.
    """

    folder: str
    name: str
    server: int
    server_started: int | None
    shared: bool
    idle_s: float

    @property
    def socket(self) -> Path:
        """Return the path of the socket."""
        return Path(self.folder, f"{self.name}.sock")

    @property
    def journal(self) -> Path:
        """Return the path of this process's journal, which lists the requests in its running passes."""
        return Path(self.folder, f"{self.name}.{os.getpid()}.running")


class Journal:
    """A file that lists the marks (names) of the running requests; the file remains if the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self.write([])

    def write(self, marks: Sequence[str]) -> None:
        """Write the requests' marks in one system call, so that the file is complete even if the process is killed."""
        text = json.dumps(marks).encode()
        os.pwrite(self._file, b"%0*d" % (_JOURNAL_LENGTH, len(text)) + text, 0)

    @staticmethod
    def read(path: str) -> list[str] | None:
        """Return the marks that a journal file lists; None if the file cannot be read."""
        try:
            data = Path(path).read_bytes()
            marks: list[str] = json.loads(data[_JOURNAL_LENGTH:][: int(data[:_JOURNAL_LENGTH])])
        except (OSError, ValueError):
            return None
        return marks


@dataclass(eq=False, slots=True)
class _Load:
    client: Client
    number: int
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Client:
    """The connection of one proxy process, and its model: each proxy process has exactly one model."""

    def __init__(self, host: Host, writer: asyncio.StreamWriter, number: int, properties: dict[str, str]) -> None:
        self.number = number
        self.properties = properties
        self.rank = Rank.NEW
        self.gone = False
        self.hosted: Hosted | None = None
        self._host = host
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._encoding = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Load the model, and answer messages until the proxy closes the connection."""
        loading = asyncio.create_task(self._load())
        try:
            while True:
                self._take(*await read(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (FrameError, KeyError, TypeError, ValueError) as error:
            logger.warning("a proxy process sent a message that cannot be read: %r", error)
        finally:
            self.gone = True
            for task in self._tasks.values():
                task.cancel()
            await asyncio.wait([loading])
            self._writer.close()

    def close(self) -> None:
        """Close the connection at once, so that the proxy notices the end of this process."""
        with contextlib.suppress(OSError):
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def _load(self) -> None:
        try:
            await self._host.loaded(self)
        except Exception as error:  # noqa: BLE001 - the proxy reports any error of a load
            self._writer.write(pack({"op": "failed", "text": _text_of(error), "kind": _kind_of(error)}))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

    def loaded(self, facts: dict[str, Any], hosted: Hosted) -> None:
        """Keep the loaded model, and send its facts to the proxy."""
        self.hosted = hosted
        text = (hosted.tokenizer_text or "").encode()
        hosted.tokenizer_text = None
        head = {"op": "loaded", "facts": facts, "client": self.number, "journal": str(self._host.journal.path)}
        self._writer.write(pack(head, text))

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        operation = head["op"]
        if operation == "hurry":
            self.rank = Rank.AWAITED
        elif operation == "cancel":
            task = self._tasks.pop(head["id"], None)
            if task is not None:
                task.cancel()
        else:
            work = {"run": self._run, "encode": self._encode, "counters": self._count}[operation]
            task = asyncio.create_task(self._answer(head["id"], work(head, body)))
            self._tasks[head["id"]] = task

    async def _answer(self, number: int, work: Awaitable[tuple[dict[str, Any], Sequence[bytes]]]) -> None:
        try:
            head, body = await work
        except HandlerError as error:
            head, body = {"op": "refused", "status": error.status, "text": str(error)}, ()
        except Exception as error:
            logger.exception("a request failed")
            head, body = {"op": "refused", "status": HandlerError.status, "text": _text_of(error)}, ()
        self._tasks.pop(number, None)
        if not self.gone:
            self._writer.write(pack({**head, "id": number}, *body))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

    async def _run(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], Sequence[bytes]]:
        hosted = self._served()
        hosted.counters.requests += 1
        outcome = await hosted.run(
            sequences_of(head["sequences"], body),
            level=Level(head["level"]),
            age_s=head["age_s"],
            mark=f"{self.number}:{head['id']}",
        )
        answer, parts = packed_outcome(outcome)
        return {"op": "done", **answer}, parts

    async def _encode(self, head: dict[str, Any], _: bytes) -> tuple[dict[str, Any], Sequence[bytes]]:
        texts = [Text(*text) for text in head["texts"]]
        async with self._encoding:
            encoded = await asyncio.to_thread(self._served().encode, texts, Cut(*head["cut"]))
        value = [
            [one.ids.tolist(), None if one.segments is None else one.segments.tolist(), one.truncated]
            for one in encoded
        ]
        return {"op": "told", "value": value}, ()

    async def _count(self, _: dict[str, Any], __: bytes) -> tuple[dict[str, Any], Sequence[bytes]]:
        return {"op": "told", "value": self._host.summary(self._served())}, ()

    def _served(self) -> Hosted:
        if self.hosted is None:
            raise HandlerError("the model is not loaded")
        return self.hosted


class Host:
    """The engine process: its socket, its clients, and the order in which their models are loaded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.journal = Journal(settings.journal)
        self._home: Home | None = None
        self._numbers = itertools.count(1)
        self._clients: set[Client] = set()
        self._loads: list[_Load] = []
        self._load_added = asyncio.Event()
        self._idle_since = time.monotonic()
        self._had_model = False

    async def run(self) -> None:
        """Serve until DJL Serving has ended, or until the process has had no model for `idle_s` seconds."""
        server = await asyncio.start_unix_server(self._serve, sock=_listening(self._settings))
        loading = asyncio.create_task(self._load_all())
        logger.info("engine process %d of server %d listens", os.getpid(), self._settings.server)
        # By then all proxies have read the journal of the process before this one.
        own = self.journal.path.name
        asyncio.get_running_loop().call_later(_READ_S, self._remove, f"{self._settings.name}.*.running", own)
        try:
            while self._has_server() and not self._is_idle():  # noqa: ASYNC110 - the server tells nobody that it ends
                await asyncio.sleep(_LOOK_S)
        finally:
            loading.cancel()
            server.close()
        self.end(0)

    def end(self, code: int) -> None:
        """Close the connections, then end this process: a thread in a GPU driver can delay the end for long."""
        if code:
            logger.critical("the engine process ends with code %d", code)
        for client in list(self._clients):
            client.close()
        self._settings.socket.unlink(missing_ok=True)
        if not code:
            # Nobody comes back to this place: the server has ended, or the only model that has it is unloaded.
            alone = not self._settings.shared or not self._has_server()
            self._remove(f"{self._settings.name}.*" if alone else self.journal.path.name)
        logging.shutdown()
        os._exit(code)

    def _remove(self, pattern: str, keep: str = "") -> None:
        """Remove the files in this engine process's folder whose names match `pattern`, except the file `keep`."""
        for path in Path(self._settings.folder).glob(pattern):
            if path.name != keep:
                path.unlink(missing_ok=True)

    async def loaded(self, client: Client) -> None:
        """Wait until a client's model is loaded and served.

        Raises:
            Exception: any exception of the load.
        """
        load = _Load(client, next(self._numbers))
        self._loads.append(load)
        self._load_added.set()
        await load.done

    def summary(self, hosted: Hosted) -> dict[str, Any]:
        """Return a model's counters, and the engine process's id and number of models."""
        return {
            "counters": asdict(hosted.counters),
            "engine": {"pid": os.getpid(), "models": sum(client.hosted is not None for client in self._clients)},
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = None
        try:
            check_peer(writer.get_extra_info("socket"), os.geteuid())
            head, _ = await read(reader)
            client = Client(self, writer, next(self._numbers), head["properties"])
            client.rank = Rank(head["rank"])
            self._clients.add(client)
            self._had_model = True
            await client.serve(reader)
        except (FrameError, ConnectionError, asyncio.IncompleteReadError, KeyError, ValueError) as error:
            logger.warning("a connection is refused: %r", error)
            writer.close()
        finally:
            if client is not None:
                if client.hosted is not None:
                    await _in_thread(client.hosted.close)
                self._clients.discard(client)
                self._idle_since = time.monotonic()

    async def _load_all(self) -> None:
        """Load models one at a time, since each load needs extra memory, which is free again after the load."""
        while True:
            while not self._loads:
                self._load_added.clear()
                await self._load_added.wait()
            load = min(self._loads, key=lambda one: (one.client.rank, one.number))
            self._loads.remove(load)
            if load.client.gone:
                load.done.cancel()
                continue
            try:
                await self._load(load.client)
                load.done.set_result(None)
            except Exception as error:
                logger.exception("a model cannot be loaded")
                load.done.set_exception(error.with_traceback(None))
                if is_lost_device(error):
                    # After a moment, in which the proxy gets the reason.
                    asyncio.get_running_loop().call_later(_FLUSH_S, self.end, LOST_DEVICE_CODE)

    async def _load(self, client: Client) -> None:
        loop = asyncio.get_running_loop()

        def load() -> tuple[Hosted, dict[str, Any]]:
            hosted = self._new_hosted(loop)
            try:
                return hosted, hosted.load(client.properties).as_data()
            except BaseException:
                hosted.close()
                raise

        hosted, facts = await _in_thread(load)
        hosted.begin()
        client.loaded(facts, hosted)

    def _new_hosted(self, loop: asyncio.AbstractEventLoop) -> Hosted:
        """Create the `Hosted` object of a model; the first call imports torch, in the thread that loads the model."""
        module = importlib.import_module(".cohost_hosted", __package__)
        if self._home is None:
            findings = module.FindingsStore(self._settings.folder, self._settings.name)
            self._home = module.Home(
                self.end, self.journal.write, findings=findings, shared=self._settings.shared, last_resort=True
            )
            self._home.watch(loop)
        hosted: Hosted = module.Hosted(self._home)
        return hosted

    def _is_idle(self) -> bool:
        # The process of a single model ends with it; the first model may take a moment to come.
        limit_s = self._settings.idle_s if self._settings.shared or not self._had_model else 0.0
        return not self._clients and time.monotonic() - self._idle_since >= limit_s

    def _has_server(self) -> bool:
        started = self._settings.server_started
        server = self._settings.server
        return started is None or (started_at(server) == started and not _is_zombie(server))


def _is_zombie(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in {"Z", "X"}
    return True


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens at the path where proxies expect it."""
    settings.socket.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_address(settings.socket) as address:
        listening.bind(address)
    listening.listen(128)
    return listening


async def _in_thread(function: Callable[[], Result]) -> Result:
    """Run a function in a new thread: libraries keep device memory for each thread until the thread ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            loop.call_soon_threadsafe(_unless_done, future.set_exception, error)
        else:
            loop.call_soon_threadsafe(_unless_done, future.set_result, result)

    def _unless_done(method: Callable[..., None], value: object) -> None:
        if not future.done():
            method(value)

    threading.Thread(target=run, name="cohost-load", daemon=True).start()
    return await future


def _kind_of(error: Exception) -> str:
    if is_out_of_memory(error):
        return "memory"
    if is_lost_device(error):
        return "lost"
    return "value" if isinstance(error, ValueError) else "other"


def _text_of(error: Exception) -> str:
    return one_line(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")


def main() -> None:
    """Run an engine process by the settings on the command line."""
    settings = Settings(**json.loads(sys.argv[1]))
    logging.basicConfig(level="INFO", format="%(levelname)s::%(message)s", stream=sys.stdout)
    logging.raiseExceptions = False
    # If memory runs out, the kernel ends this process first: its proxies start another one, and no call is lost.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
    asyncio.run(Host(settings).run())


if __name__ == "__main__":
    main()
