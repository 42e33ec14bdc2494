"""Starting and stopping the AWS on this machine, as a process of its own.

`local_aws` is never imported from here: the arrow between the folders points the other way, and a deploy machine does
not install what it needs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_STATE = Path(".cohost")
DEFAULT_PORT = 4599
LOCAL_REGION = "us-east-1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.1
_NEEDS = ("moto", "starlette", "torch", "transformers", "uvicorn")


@dataclass(frozen=True, kw_only=True)
class LocalServer:
    """A running AWS on this machine: where it answers, its process, and the folder it keeps logs and archives in."""

    url: str
    pid: int
    state: Path

    def environment(self, catalog: Path | None = None) -> dict[str, str]:
        """The variables with which `cdk`, `aws`, boto3 and `locust` talk to this server and not to AWS."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": LOCAL_REGION,
            "AWS_DEFAULT_REGION": LOCAL_REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "1",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
            **({"COHOST_CATALOG": str(catalog)} if catalog else {}),
        }


def start(*, port: int, state: Path, catalog: Path, hub: Sequence[Path] = ()) -> LocalServer:
    """Start the server in the background and wait until it answers; its output goes to `state`/logs/server.log.

    Args:
        port: the port on 127.0.0.1; 0 takes a free one.
        state: the folder for logs, fetched archives and the file that says which process runs.
        catalog: the catalog that is going to be deployed.
        hub: further folders of models laid out as org/name.

    Raises:
        LocalError: it runs already, the port is in use, a package is missing, or it does not come up.
    """
    check_packages()
    if (running := find(state)) is not None:
        msg = (
            f"state {str(state)!r}: a server runs there already (process {running.pid}, {running.url}); allowed: one a "
            "folder; fix: stop it with `cohost local down`, or name another folder with --state"
        )
        raise LocalError(msg)
    check_port(port)
    log = state / "logs" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "local_aws", "up", "--port", str(port), "--state", str(state.resolve())]
    command += ["--catalog", str(catalog.resolve())]
    command += [part for root in hub for part in ("--hub", str(root.resolve()))]
    return _wait_until_up(_spawn(command, log), state, log)


def is_local(url: str) -> bool:
    """Tell whether a service answers on this machine."""
    return urllib.parse.urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}


def find(state: Path) -> LocalServer | None:
    """The server that keeps its state in a folder; None when none runs there."""
    try:
        record = json.loads((state / "server.json").read_text())
        server = LocalServer(url=record["url"], pid=record["pid"], state=state)
    except (FileNotFoundError, ValueError, KeyError):
        return None
    health = _health(server.url)
    # The pid in the answer tells our server from another process that took its port or its process id.
    return server if health is not None and health.get("pid", server.pid) == server.pid else None


def stop(state: Path) -> bool:
    """End the server of a state folder with all its containers; False when none runs there.

    Raises:
        LocalError: it does not end within the time limit.
    """
    server = find(state)
    if server is None:
        return False
    if not _end(server.pid):
        msg = (
            f"process {server.pid} has not ended {STOP_TIMEOUT_S:.0f} s after SIGTERM; fix: see its log in {state}/logs"
        )
        raise LocalError(msg)
    return True


def check_packages() -> None:
    """See that the packages are there that `local_aws` needs.

    Raises:
        LocalError: some are missing.
    """
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        msg = (
            f"the AWS on this machine needs {', '.join(missing)}; allowed: an environment with the group `local`; fix: "
            "run `make setup`, or `uv sync --group local`"
        )
        raise LocalError(msg)


def check_port(port: int) -> None:
    """See that a server can listen on a port of 127.0.0.1.

    Raises:
        LocalError: it cannot.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            msg = (
                f"--port: {port} on 127.0.0.1 cannot be used ({reason}); allowed: a free port from 1024 to 65535; fix: "
                "choose another, or 0 for any free one"
            )
            raise LocalError(msg) from error


def _spawn(command: Sequence[str], log: Path) -> int:
    """Start a program in a session of its own, so that it outlives this one and its terminal; its process id."""
    # Not subprocess.Popen: that object wants to see its process end, and this one is meant to stay.
    return os.posix_spawn(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _wait_until_up(pid: int, state: Path, log: Path) -> LocalServer:
    try:
        if (server := _first_answer(pid, state)) is not None:
            return server
    except KeyboardInterrupt:
        _end(pid)
        raise
    _end(pid)
    lines = log.read_text(errors="replace").strip().splitlines()
    msg = f"the server did not start: {lines[-1] if lines else 'no output'}; fix: see {log}"
    raise LocalError(msg)


def _first_answer(pid: int, state: Path) -> LocalServer | None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and _alive(pid):
        server = find(state)
        if server is not None and server.pid == pid:
            return server
        time.sleep(_POLL_S)
    return None


def _end(pid: int) -> bool:
    """Ask a process to end and wait for it; False when it has not ended within the time limit."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        if not _alive(pid):
            return True
        time.sleep(_POLL_S)
    return False


def _health(url: str) -> Mapping[str, Any] | None:
    try:
        with urllib.request.urlopen(f"{url}/_cohost/health", timeout=2) as response:  # noqa: S310 - always http://127.0.0.1
            answer = json.load(response)
    except (OSError, ValueError, urllib.error.URLError):
        return None
    return answer if isinstance(answer, dict) else None


def _alive(pid: int) -> bool:
    # Reaps the server when this process is its parent; elsewhere the test of signal 0 tells.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
