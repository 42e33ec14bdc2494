"""The folder and socket of an engine process, its start, and the choice among several engine processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .cohost_frames import check_peer, short_address
from .cohost_host import Settings
from .cohost_restart import started_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cohost_options import Options

logger = logging.getLogger(__name__)

_IDLE_S: Final = 30.0
_START_S: Final = 60.0
_LOCK_LOOK_S: Final = 0.02
# Threads that wait for work give up their core, and the memory of a GPU grows in place; both are read when torch is
# imported. Measured on two busy cores: with threads that spin, one text at a time ran at 9 items/s instead of 41.
_ENVIRONMENT: Final = {"OMP_WAIT_POLICY": "PASSIVE", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
_OLDER_NAME: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class Place:
    """A folder that only this user can open, and the names of an engine process's files in it (socket, lock, journal).

    All shared models with the same server, device and handler version use the same names; each worker of any other
    model uses names of its own.
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
        """Return a connection to the engine process; start an engine process if none listens.

        Raises:
            OSError: the engine process cannot be started, or does not listen within a minute.
        """
        if self._engine is None:
            self._engine = self._chosen_engine()
        settings = self._settings()
        with contextlib.suppress(OSError):
            return _connected(settings)
        # Nobody else starts the engine process of a model that is not shared.
        lock = _locked(Path(settings.folder, f"{settings.name}.lock")) if self._shared else contextlib.nullcontext()
        with lock:
            with contextlib.suppress(OSError):
                return _connected(settings)
            _sweep(Path(settings.folder))
            return self._started(settings)

    def _chosen_engine(self) -> int:
        """Return the number of the engine process with the fewest proxies; a file lists each proxy's choice."""
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
            # A process group of its own, so that no signal to the worker's process group reaches the engine process. In
            # a session of its own, Linux's autogroup scheduler would give each engine process as much CPU time as all
            # proxy processes and the server together, and their answers would wait.
            child = subprocess.Popen(  # noqa: S603 - this interpreter and a file of this folder
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, process_group=0
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
    """Yield DJL Serving's standard output, for an engine process's log; None means this process's standard output.

    The engine process may outlive this process's model, and DJL Serving reads the output of this process only while the
    model is loaded. A log file is used only if it was opened for appending, since several processes write to it.
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
    """Return the folder of this user's sockets, which no other user can open.

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
    """Remove the files that belong to DJL Serving processes that have ended."""
    for path in folder.iterdir():
        server, _, rest = path.name.partition("-")
        if server.isdigit() and str(started_at(int(server))) != rest.partition("-")[0]:
            path.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
