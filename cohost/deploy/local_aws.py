"""Start and stop of the local AWS emulator, which runs as a separate process, and requests to its own pages.

The module `cohost.deploy.local_aws` never imports the package `local_aws`, which implements the emulator: the package
imports `cohost`, and a machine that only deploys lacks the package's dependencies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
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
KEY_FILE = "access_key.json"
"""The file in the state folder with the user's access key, {"key_id", "secret"}. The emulator creates the file, which
only its owner may read."""

ADMINISTRATOR_FILE = "administrator_key.json"
"""The file with the key of an administrator, for the set-up of an account whose user acts as a role."""

PAGES_SERVICE = "cohost"
"""The service name in the signatures of requests to the emulator's own pages, /_cohost/… and moto's /moto-api/…"""

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class LocalServer:
    """A running emulator: its URL, its process id, and the state folder with its logs and archives.

    `catalog` is the catalog file that the emulator was started with; None if that is not known.
    """

    url: str
    pid: int
    state: Path
    catalog: Path | None = None

    def environment(self, catalog: Path | None = None, *, administrator: bool = False) -> dict[str, str]:
        """Return the environment variables with which `cdk`, `aws`, boto3 and `locust` call the emulator, not AWS.

        Args:
            catalog: the catalog that the variable COHOST_CATALOG names; None for no variable.
            administrator: return the key of an administrator instead of the user's, who acts as a role.

        Raises:
            LocalError: the state folder has no access key that this user may read.
        """
        key = read_key(self.state, ADMINISTRATOR_FILE if administrator else KEY_FILE)
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key["key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret"],
            # The shell may hold the session token of another access key. Every SDK ignores an empty session token.
            "AWS_SESSION_TOKEN": "",
            "AWS_REGION": LOCAL_REGION,
            "AWS_DEFAULT_REGION": LOCAL_REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "1",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
            **({"COHOST_CATALOG": str(catalog)} if catalog else {}),
        }

    def ask(self, path: str, put: object = None, *, method: str | None = None) -> Any:
        """Request one of the emulator's own pages, such as /_cohost/endpoints, and return the parsed JSON.

        Args:
            path: the path of the page.
            put: the body, sent as JSON; None for no body.
            method: the HTTP method; None means PUT with a body, else GET.

        Raises:
            LocalError: the emulator answers with an error or does not answer.
        """
        body = b"" if put is None else json.dumps(put).encode()
        method = method or ("PUT" if body else "GET")
        headers = _signed(read_key(self.state), method, self.url + path, body)
        request = urllib.request.Request(self.url + path, body or None, headers, method=method)  # noqa: S310 - http://127.0.0.1
        try:
            # The emulator is on this machine, so the proxies in the environment variables are not used.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            raise LocalError(
                "server-refused",
                f"{method} {path}",
                f"the AWS on this machine answers {error.code}: {error.read().decode('utf-8', 'replace')}",
                fix="see docs/emulation.md",
            ) from error
        except OSError as error:
            raise LocalError(
                "server-unreachable",
                f"{method} {path}",
                f"{self.url} does not answer ({error})",
                fix=f"see {self.state}/logs/server.log",
            ) from error


def start(*, port: int, state: Path, catalog: Path, hub: Sequence[Path] = (), act_as: str | None = None) -> LocalServer:
    """Start the emulator in the background and wait until it answers; its output goes to `state`/logs/server.log.

    Args:
        port: the port on 127.0.0.1; 0 takes a free port.
        state: the folder for logs, fetched archives and the file with the id of the process.
        catalog: the file of the catalog that is going to be deployed.
        hub: further folders of models laid out as org/name.
        act_as: the ARN of the role as which the user's calls are judged; None for calls that are not judged.

    Raises:
        LocalError: an emulator runs already with this state folder, the port is in use, or the emulator does not answer
            within 60 s.
    """
    if (running := find(state)) is not None:
        raise LocalError(
            "server-running",
            f"state {state}",
            f"a server runs there already (process {running.pid}, {running.url})",
            allowed="one per folder",
            fix=f"stop it with `{subcommand('down', state)}`, or name another folder with --state",
        )
    check_port(port)
    log = state / "logs" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "local_aws", "up", "--port", str(port), "--state", str(state.resolve())]
    command += ["--catalog", str(catalog.resolve())]
    command += [part for root in hub for part in ("--hub", str(root.resolve()))]
    command += [] if act_as is None else ["--as", act_as]
    return _wait_until_up(_spawn(command, log), state, log)


def is_local(url: str) -> bool:
    """Return True if the host of a service's URL is this machine."""
    return urllib.parse.urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}


def read_key(state: Path, file: str = KEY_FILE) -> dict[str, str]:
    """Return `key_id` and `secret` of an access key in a state folder; by default, of the user's key.

    Raises:
        LocalError: the folder has no such access key, or this user may not read it.
    """
    path = state / file
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {"key_id": str(record["key_id"]), "secret": str(record["secret"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(
            "access-key-missing",
            str(path),
            f"no access key can be read there ({error})",
            allowed="the folder of a server that you started",
            fix=f"start one with `{subcommand('up', state)}`, which makes the key; with --as also an administrator's",
        ) from error


def subcommand(name: str, state: Path) -> str:
    """Format a subcommand of `cohost local` as a user types it, with `--state` unless the folder is the default."""
    where = "" if state.resolve() == DEFAULT_STATE.resolve() else f" --state {shlex.quote(str(state))}"
    return f"cohost local {name}{where}"


def find(state: Path) -> LocalServer | None:
    """Return the running emulator of a state folder; None if none runs with that folder."""
    try:
        record = json.loads((state / "server.json").read_text())
        catalog = record.get("catalog")
        server = LocalServer(
            url=record["url"], pid=record["pid"], state=state, catalog=None if catalog is None else Path(catalog)
        )
    except (FileNotFoundError, ValueError, KeyError):
        return None
    health = _health(server.url)
    # The pid in the answer distinguishes the emulator from another process that took over its port or its process id.
    return server if health is not None and health.get("pid", server.pid) == server.pid else None


def stop(state: Path) -> bool:
    """Stop the emulator of a state folder with all its containers; return False if none runs with that folder.

    Raises:
        LocalError: the emulator still runs 30 s after SIGTERM.
    """
    server = find(state)
    if server is None:
        return False
    if not _end(server.pid):
        raise LocalError(
            "server-unstopped",
            f"process {server.pid}",
            f"has not ended {STOP_TIMEOUT_S:.0f} s after SIGTERM",
            fix=f"see its log in {state}/logs",
        )
    return True


def check_port(port: int) -> None:
    """Check that a server can listen on a port of 127.0.0.1.

    Raises:
        LocalError: the port is in use, not permitted or not a port number.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LocalError(
                "port-unusable",
                "--port",
                f"{port} on 127.0.0.1 cannot be used ({reason})",
                allowed="a free port from 1024 to 65535",
                fix="choose another, or 0 for any free one",
            ) from error


def _spawn(command: Sequence[str], log: Path) -> int:
    """Start a program in a new session, so that it outlives this process and its terminal; return its process id."""
    # subprocess.Popen is not used: it warns if the process still runs when the Popen object is deleted.
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
    last = lines[-1] if lines else "no output"
    raise LocalError("server-not-started", f"state {state}", f"the server did not start ({last})", fix=f"see {log}")


def _first_answer(pid: int, state: Path) -> LocalServer | None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and _alive(pid):
        server = find(state)
        if server is not None and server.pid == pid:
            return server
        time.sleep(_POLL_S)
    return None


def _end(pid: int) -> bool:
    """Send SIGTERM to a process and wait for its end; return False if the process still runs after 30 s."""
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


def _signed(key: Mapping[str, str], method: str, url: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request to one of the emulator's own pages, signed with AWS Signature Version 4."""
    from botocore.auth import SigV4Auth  # most commands need no botocore
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method, url, headers={"Content-Type": "application/json"}, data=body)
    SigV4Auth(Credentials(key["key_id"], key["secret"]), PAGES_SERVICE, LOCAL_REGION).add_auth(request)
    return dict(request.headers.items())


def _alive(pid: int) -> bool:
    # If the process is a child of this one and has ended, waitpid removes it from the process table; signal 0 then
    # finds out if a process with this id exists.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
