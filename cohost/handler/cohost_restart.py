"""Find out if DJL Serving started this process for the first time, again, or again for an unloaded model.

DJL Serving 0.36.0 restarts the process of an asynchronous model whenever it ends, even if the server itself ended it
because the model was unloaded. The restarted process of an unloaded model would load the weights, belong to no model,
and stay until the server ends. So during the import of model.py, a restarted process asks the server which models of
its folder are loaded, and ends if there are none. The restarted process must not end later: if it ends or fails in its
first call, a thread of the server waits for ever, and a request to unload the model gets no answer (recorded:
`djl_lifecycle`, 28 and 31).

If the server's answer leaves doubt, the process continues: a needless process only takes memory, but without a needed
one the model is not served. The model is certainly unloaded if no listed model of this folder has a worker old enough
to have started the process before this one. A listed model whose workers are all newer was loaded again after the
unloading.

The module `cohost_restart` uses the standard library only, since a restarted process imports nothing else before the
server has answered.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import stat
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)

_MARKER_SUFFIX: Final = ".cohost"
_MARKER_BYTES: Final = 8192
_ANSWER_BYTES: Final = 16 << 20
# A connection may reach a thread of the server that is busy with this very restart; the next attempt reaches another.
_ATTEMPT_S: Final = 2.0
_LIMIT_S: Final = 10.0
# The start time of a process has a resolution of a hundredth of a second.
_TICK_S: Final = 0.1
# Only a worker created at most this long before the process started, or later, counts as that of a reload.
_RELOAD_S: Final = 60.0
_PAUSE_S: Final = 0.2
_ENVIRONMENT_ADDRESS: Final = "SERVING_MANAGEMENT_ADDRESS"
_FAILED: Final = "FAILED"
_PROPERTY: Final = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$")
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server listens on, not this

_begun: dict[str, bool] = {}


class UncertainError(Exception):
    """The server's management API cannot be queried, or its answer does not list the models."""


def begin(
    folder: Path, *, arguments: Sequence[str] | None = None, end_process: Callable[[int], None] = os._exit
) -> bool:
    """Record the start of this process, and end it if it is a restart of an unloaded model.

    The server gives each worker a socket of its own, which the worker's restarts share; a marker file beside the socket
    records the previous process. The server may import model.py more than once; later calls in the same process return
    the first result.

    Args:
        folder: the model's folder, which contains model.py.
        arguments: the command line of the server's Python engine; by default the command line of this process.
        end_process: called with exit code 0 if the model is unloaded.

    Returns:
        True for a restart, False for a first start and for a process that no server started.
    """
    own = os.path.realpath(folder)
    if own not in _begun:
        try:
            _begun[own] = _begin(own, sys.argv if arguments is None else arguments, end_process)
        except Exception:
            # On any error, load the model: losing a served model is worse than leaking an unloaded one.
            logger.exception("this process cannot tell whether it is a restart, so it loads the model")
            _begun[own] = False
    return _begun[own]


def withdraw(arguments: Sequence[str] | None = None) -> None:
    """Remove this process's marker: the server does not restart a process that ends before it listens."""
    name = _option(sys.argv if arguments is None else arguments, "--sock-name")
    if name is not None:
        with contextlib.suppress(OSError):
            Path(name + _MARKER_SUFFIX).unlink()


def _begin(folder: str, arguments: Sequence[str], end_process: Callable[[int], None]) -> bool:
    name = _option(arguments, "--sock-name")
    marker = _Marker.of_this_process(folder)
    if name is None or marker is None:
        return False
    path = Path(name + _MARKER_SUFFIX)
    earlier = _read(path)
    restarted = earlier is not None and earlier.is_before(marker)
    if earlier is not None and restarted and not _is_loaded(earlier, marker):
        logger.warning("%s is unloaded, so this process, which the server started again, ends", folder)
        with contextlib.suppress(OSError):
            path.unlink()
        end_process(0)
        return True
    if not restarted:
        _sweep(path.parent)
    _write(path, marker)
    return restarted


@dataclass(frozen=True, kw_only=True, slots=True)
class _Marker:
    """The marker of the last start on a socket: server and process ids with their start times, in ticks since boot.

    A process id is reused after its process has ended; together with the start time it is unique.
    """

    server: int
    server_started: int
    process: int
    process_started: int
    folder: str

    @classmethod
    def of_this_process(cls, folder: str) -> _Marker | None:
        """Return the marker of this process; None on systems without /proc."""
        server, process = os.getppid(), os.getpid()
        server_started, process_started = started_at(server), started_at(process)
        if server_started is None or process_started is None:
            return None
        return cls(
            server=server,
            server_started=server_started,
            process=process,
            process_started=process_started,
            folder=folder,
        )

    @property
    def wall_time(self) -> float:
        """Return the start time of the process, in seconds since the epoch by the current clock."""
        booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted_at + self.process_started / os.sysconf("SC_CLK_TCK")

    def is_before(self, later: _Marker) -> bool:
        """Return True if this marker and `later` belong to different processes of the same model and server."""
        same = (self.server, self.server_started, self.folder) == (later.server, later.server_started, later.folder)
        return same and (self.process, self.process_started) != (later.process, later.process_started)


def started_at(process: int) -> int | None:
    """Return a process's start time in clock ticks since boot (man 5 proc_pid_stat, field 22); None if unknown."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        # The second field is the program's name in parentheses, which may itself contain blanks and parentheses.
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _read(path: Path) -> _Marker | None:
    """Return the marker in a file; None if another user wrote the file, since all users may write to its folder."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(file, "rb") as stream:  # noqa: PTH123 - a descriptor, so that the checked file is the one that is read
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return None
        try:
            return _Marker(**json.loads(stream.read(_MARKER_BYTES)))
        except (OSError, ValueError, TypeError):
            return None


def _write(path: Path, marker: _Marker) -> None:
    """Write a marker atomically, readable by its owner only; if that fails, a restart is taken for a first start."""
    temporary = path.with_name(f"{path.name}.{marker.process}")
    try:
        temporary.unlink(missing_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="ascii") as stream:  # noqa: PTH123 - a descriptor
            json.dump(asdict(marker), stream)
        temporary.replace(path)
    except OSError as error:
        logger.warning("%s: cannot be written, so a restart of this process is not known as one: %s", path, error)


def _sweep(folder: Path) -> None:
    """Remove the markers that belong to DJL Serving processes that have ended."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"*{_MARKER_SUFFIX}"):
            marker = _read(path)
            if marker is not None and started_at(marker.server) != marker.server_started:
                path.unlink(missing_ok=True)


def _option(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of a command line option, `name value` or `name=value`; None if the option is missing."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names and equals:
            return value
        if argument in names and index + 1 < len(arguments):
            return arguments[index + 1]
    return None


# --- What the server has loaded ---------------------------------------------------------------------------------------


def _is_loaded(earlier: _Marker, own: _Marker) -> bool:
    """Return False if the server certainly has no worker left that started this process and the earlier one."""
    try:
        api = ManagementApi(management_address(own.server))
        return any(
            may_be(url, own.folder) and any(_may_have_started(at, earlier, own) for at in api.worker_starts(name))
            for name, url in api.models()
        )
    except UncertainError as error:
        logger.warning("%s is loaded, since the server cannot be asked whether it still is: %s", own.folder, error)
        return True


def _may_have_started(worker: float, earlier: _Marker, own: _Marker) -> bool:
    """Return True if a worker created at `worker` (seconds since the epoch) may have started both processes.

    A worker is created before its first process, and keeps its creation time when it starts another process (recorded:
    `djl_lifecycle`, 27). The clock may have been set back since then, so a worker counts as a different one only if it
    was created about when this process started, or later.
    """
    return worker <= earlier.wall_time + _TICK_S or worker < own.wall_time - _RELOAD_S


def management_address(server: int, proc: Path = Path("/proc")) -> str:
    """Return the address of a server's management API, from its environment or, if absent there, its config file.

    Args:
        server: the server's process id.
        proc: the system's folder of processes.

    Raises:
        UncertainError: the server's command line, its config file, or the address in it cannot be read.
    """
    home = proc / str(server)
    try:
        arguments = _words(home / "cmdline")
        environment = _environment(home)
        if _ENVIRONMENT_ADDRESS in environment:
            return environment[_ENVIRONMENT_ADDRESS]
        config = _config_file(arguments, environment, home / "cwd")
        lines = config.read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise UncertainError(str(error)) from error
    values = {found[1]: found[2] for found in map(_PROPERTY.match, lines) if found}
    if "management_address" not in values:
        raise UncertainError(f"{config}: has no management_address")
    # Java properties files may have a backslash before each colon.
    return values["management_address"].replace("\\", "")


def _environment(home: Path) -> Mapping[str, str]:
    """Return the server's environment; if it cannot be read, the environment of this process, which inherited it."""
    try:
        return dict(word.partition("=")[::2] for word in _words(home / "environ"))
    except OSError:
        return os.environ


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\0").split("\0")


def _config_file(arguments: Sequence[str], environment: Mapping[str, str], current: Path) -> Path:
    """Return DJL Serving's config file: that of its command line, or that in its home (0.36.0: Arguments.java)."""
    told = _option(arguments, "-f", "--config-file") or _option(arguments, "-Dai.djl.conf")
    if told is not None:
        return current / told
    home = current / environment.get("MODEL_SERVER_HOME", "")
    nested = home / "conf" / "config.properties"
    return nested if nested.is_file() else home / "config.properties"


class ManagementApi:
    """A client of DJL Serving's management API; all requests of one client together may take 10 seconds."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._limit = time.monotonic() + _LIMIT_S

    def models(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the URL of each model that the server has loaded and not given up.

        A given-up model has the state FAILED: the server sends it no calls any more, and only unloading the model ends
        that state (recorded: `djl_lifecycle`, 27).

        Raises:
            UncertainError: there is no answer in time, or the answer does not list models.
        """
        path = "/models"
        while path:
            page = self._get(path)
            with _clear(page):
                yield from [
                    (str(model["modelName"]), str(model["modelUrl"]))
                    for model in page["models"]
                    if model.get("status") != _FAILED
                ]
                token = page.get("nextPageToken")
            path = "" if token is None else f"/models?next_page_token={quote(str(token), safe='')}"

    def worker_starts(self, name: str) -> list[float]:
        """Return the creation times of a model's workers, in seconds since the epoch; empty while the model loads.

        Raises:
            UncertainError: there is no answer in time, or the answer does not list workers.
        """
        answer = self._get(f"/models/{quote(name, safe='')}")
        with _clear(answer):
            models = [model for workflow in answer for model in workflow["models"]]
            groups = [group for model in models for group in model["workerGroups"]]
            times = [worker["startTime"] for group in groups for worker in group["workers"]]
            return [datetime.fromisoformat(time).timestamp() for time in times]

    def _get(self, path: str) -> Any:  # what the server answers
        """Return the parsed answer to a GET, with retries: a busy server may not accept the first connection."""
        failure = ""
        while (now := time.monotonic()) < self._limit:
            try:
                return json.loads(_get(self._address, path, now + _ATTEMPT_S))
            except (ConnectionRefusedError, FileNotFoundError) as error:
                raise UncertainError(f"{self._address}: nobody listens there") from error
            except (OSError, ValueError, RecursionError) as error:
                failure = f"{type(error).__name__}: {error}"
            time.sleep(_PAUSE_S)
        raise UncertainError(f"{self._address}{path}: no answer that can be read in {_LIMIT_S:g} s; {failure}")


@contextlib.contextmanager
def _clear(answer: object) -> Iterator[None]:
    """Raise `UncertainError` if an answer of the management API has an unknown form."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UncertainError(f"the server answers {answer!a:.200}") from error


def _get(address: str, path: str, deadline: float) -> bytes:
    """Return the body of the answer to a GET; `deadline` is in seconds of the monotonic clock.

    Raises:
        OSError: there is no connection, or no complete answer until the deadline.
        ValueError: the status is not 200, or the answer is not HTTP.
    """
    # Imported here, because a first start does not need it, and it takes as long as all other imports of this module.
    from http.client import HTTPException, HTTPResponse

    with _connect(address) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("ascii"))
        answer = HTTPResponse(connection, method="GET")
        try:
            answer.begin()
            body = b""
            while chunk := answer.read1(65_536):
                body += chunk
                if time.monotonic() > deadline or len(body) > _ANSWER_BYTES:
                    raise TimeoutError("the answer takes too long")
        except HTTPException as error:
            raise ValueError(f"no HTTP: {error!r}") from error
        if answer.status != 200:  # noqa: PLR2004 - the status of an answer that lists models
            raise ValueError(f"status {answer.status}")
        return body


def _connect(address: str) -> socket.socket:
    if address.lower().startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ATTEMPT_S)
        try:
            connection.connect(address[len("unix:") :])
        except BaseException:
            connection.close()
            raise
        return connection
    parts = urlsplit(address)
    if parts.scheme != "http" or parts.hostname is None:
        raise UncertainError(f"{address}: is neither http:// nor unix:")
    host = _ANY_ADDRESS.get(parts.hostname, parts.hostname)
    return socket.create_connection((host, parts.port or 80), timeout=_ATTEMPT_S)


def may_be(url: str, folder: str) -> bool:
    """Return False if a listed model is certainly not the model of this folder.

    The listed model is certainly another one only if its URL names another folder that exists. An archive's URL does
    not show the folder that the archive was unpacked to. The forms of URLs that were recorded are /path, file:/path/
    and file:///path (`djl_vectors`).

    Args:
        url: the listed model's modelUrl.
        folder: this model's own folder, symbolic links resolved.
    """
    text = url
    if url.lower().startswith("file:"):
        text = url[len("file:") :]
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
    if not text.startswith("/"):
        return True
    paths = {text, unquote(text)}
    return any(os.path.realpath(path) == folder for path in paths) or not any(map(os.path.isdir, paths))
