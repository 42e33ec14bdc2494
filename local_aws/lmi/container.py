"""One LMI container as a child process of the program that serves an endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import httpx
import psutil

from cohost.callers import TOKEN_HEADER, TOKEN_VARIABLE, new_token
from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_ROOT = Path(__file__).resolve().parents[2]
_READY = "ready.json"
_READY_OPTION = "--ready-file"
_POLL_S = 0.02
_TERM_GRACE_S = 5.0


class ContainerError(LocalError):
    """The container ended while starting, or did not listen in time; the container's log file has the reason."""


class Container:
    """A running LMI container: DJL Serving's HTTP API is at `url`, and `pid` is the server process.

    The server answers only requests with `headers`, which hold a token that is made anew at each start.

    The server process ends when this process ends, also after `kill -9`: its standard input is a pipe whose only writer
    is this process, and the system closes the pipe at any death. A parent-death signal would not work, since Linux
    sends that signal when the *thread* that started the child ends.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str, folder: Path) -> None:
        self.url = url
        self.token = token
        self.pid = process.pid
        self._process = process
        self._folder = folder
        self._client = httpx.AsyncClient(base_url=url, headers=self.headers, trust_env=False, timeout=5.0)
        self._stopping = asyncio.Lock()

    @classmethod
    async def start(
        cls,
        *,
        model_store: Path,
        multi_model: bool,
        hub_roots: Sequence[Path],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        memory_mb: int | None = None,
        start_timeout_s: float = 60,
    ) -> Self:
        """Start a container and wait until it listens; it listens once the models of its model store are loaded.

        `environment` is added to this process's environment variables; `memory_mb` is the memory, in MiB, that models
        may take (None: the machine's free memory); the output of server and workers is appended to `log_file`.

        Raises:
            ContainerError: the server process ended or did not listen within `start_timeout_s` seconds.
        """
        folder = Path(tempfile.mkdtemp(prefix="lmi-"))
        command = _command(model_store, folder, hub_roots, multi_model=multi_model, memory_mb=memory_mb)
        token = new_token()
        process = await _spawn(command, log_file, {**(environment or {}), TOKEN_VARIABLE: token})
        try:
            port = await asyncio.wait_for(_listening_port(process, folder, log_file), start_timeout_s)
        except BaseException as error:
            await _kill(process)
            _remove(folder)
            if isinstance(error, TimeoutError):
                raise ContainerError(
                    "container-start-timeout",
                    "container",
                    f"did not listen within {start_timeout_s:g} s",
                    fix=f"look into {log_file} for what it waits for",
                ) from None
            raise
        return cls(process, f"http://127.0.0.1:{port}", token, folder)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that every request to the container needs."""
        return {TOKEN_HEADER: self.token}

    @property
    def alive(self) -> bool:
        """Return True while the server process runs."""
        return self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the server process, -N for signal N; None while the process runs."""
        return self._process.returncode

    async def ping(self) -> bool:
        """Return True if `GET /ping` answers 200; False for any other answer, or none."""
        try:
            return (await self._client.get("/ping")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    async def stop(self) -> None:
        """End the container and its workers: SIGTERM, and SIGKILL after five seconds. A second call does nothing."""
        async with self._stopping:
            await self._client.aclose()
            if self.alive:
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
                try:
                    await asyncio.wait_for(self._process.wait(), _TERM_GRACE_S)
                except TimeoutError:
                    await _kill(self._process)
            _close_stdin(self._process)
            _remove(self._folder)


def address_of(pid: int) -> tuple[str, str] | None:
    """Return the URL and the token of this user's container with the process id `pid`; None for any other process.

    A container writes port and token into a file when it listens (`--ready-file`); only its user can read that file.
    """
    try:
        arguments = psutil.Process(pid).cmdline()
        ready = json.loads(Path(arguments[arguments.index(_READY_OPTION) + 1]).read_text())
    except (psutil.Error, OSError, ValueError, IndexError):
        return None
    return f"http://127.0.0.1:{ready['port']}", ready["token"]


def _command(
    model_store: Path, folder: Path, hub_roots: Sequence[Path], *, multi_model: bool, memory_mb: int | None
) -> list[str]:
    command = [sys.executable, "-m", "local_aws.lmi", "--port", "0", "--model-store", str(model_store)]
    command += ["--multi-model" if multi_model else "--no-multi-model", "--watch-parent"]
    command += [_READY_OPTION, str(folder / _READY), "--cache", str(folder)]
    for root in hub_roots:
        command += ["--hub", str(root)]
    if memory_mb is not None:
        command += ["--memory-mb", str(memory_mb)]
    return command


async def _spawn(command: list[str], log_file: Path, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    search_path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with _append_to(log_file) as log:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": search_path, **environment},
        )


async def _listening_port(process: asyncio.subprocess.Process, folder: Path, log_file: Path) -> int:
    while (port := _read_port(folder / _READY)) is None:
        if process.returncode is not None:
            ended = f"ended with exit code {process.returncode} while starting"
            raise ContainerError("container-ended", "container", ended, fix=f"correct what {log_file} names")
        await asyncio.sleep(_POLL_S)
    return port


def _read_port(ready: Path) -> int | None:
    return int(json.loads(ready.read_text())["port"]) if ready.exists() else None


def _append_to(log_file: Path) -> BinaryIO:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return log_file.open("ab")


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    _close_stdin(process)


def _close_stdin(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _remove(folder: Path) -> None:
    """Remove the container's folder of unpacked files; only a killed container has not removed it itself."""
    shutil.rmtree(folder, ignore_errors=True)
