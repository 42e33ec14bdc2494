"""Runs an engine with a catalog's models: checks, start, loads, report, and an end that leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx

from cohost.callers import new_token, write_private
from cohost.images import image_uri
from cohost.local import check_port
from local_aws.engines.engine import EngineError, Setup
from local_aws.engines.models import Loaded, explained, load_models, local_weights, write_models
from local_aws.engines.proxy import checked
from local_aws.engines.report import Report, Server, report_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cohost.catalog import Catalog
    from local_aws.engines.engine import Engine, Start

STATE_FILE = "engine.json"
_POLL_S = 0.2
_STOP_GRACE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running engine with its models: what came of each load, and the report after them."""

    server: Server
    loads: Sequence[Loaded]
    report: Report

    @property
    def faults(self) -> list[str]:
        """Why the models do not all fit: loads that were refused, then what the report found."""
        refused = [f"{load.name} was not loaded: {load.fault}" for load in self.loads if load.fault is not None]
        return [*refused, *self.report.faults]

    def content(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        loads = [asdict(load) for load in self.loads]
        return {**self.report.content(), "loads": loads, "faults": self.faults, "fits": not self.faults}


def setup_for(catalog: Catalog, *, state: Path, port: int, hubs: Sequence[Path], region: str) -> Setup:
    """What an engine needs to know to serve a catalog; files go to `state`/engine.

    Raises:
        ImageError: the catalog's image has no URI in the region.
    """
    folder = state.resolve() / "engine"
    folder.mkdir(parents=True, exist_ok=True)
    image = catalog.endpoint.image_uri or image_uri(catalog.endpoint.image, region)
    return Setup(
        image=image,
        models=folder / "models",
        scratch=folder,
        port=port or _free_port(),
        behind_port=_free_port(),
        token=new_token(),
        environment=catalog.endpoint.environment,
        handlers={entry.handler for entry in catalog.models.values()},
        hubs=[hub.resolve() for hub in hubs],
        weights=local_weights(catalog, hubs),
    )


@contextlib.contextmanager
def running(
    engine: Engine, catalog: Catalog, setup: Setup, *, start_timeout_s: float, warn: Callable[[str], None]
) -> Iterator[Served]:
    """An engine with the catalog's models loaded; when the block ends, it has ended with all its processes.

    `warn` is told before the start what the user has to know of it.

    Raises:
        EngineError: something is missing, the port is in use, or the server does not answer within the time limit.
    """
    check_port(setup.port)
    engine.check(setup)
    write_models(catalog, engine, setup)
    log = setup.scratch / f"{engine.name}.log"
    state_file = setup.scratch / STATE_FILE
    with contextlib.ExitStack() as stack:
        stack.callback(engine.stop)
        start = engine.start(setup)
        if start.warning is not None:
            warn(start.warning)
        if start.behind is not None:
            stack.enter_context(checked(setup.port, setup.token, start.behind))
        process = _spawn(start, log)
        stack.callback(_end, process)
        stack.callback(state_file.unlink, missing_ok=True)
        server = Server(
            name=engine.name,
            url=f"http://127.0.0.1:{setup.port}",
            pid=process.pid,
            token=setup.token,
            container=engine.container,
            instance_type=catalog.endpoint.instance_type,
            log=str(log),
        )
        _wait_until_up(process, server, log, start_timeout_s)
        write_private(state_file, json.dumps(asdict(server)))
        loads = load_models(server, {name: engine.model_url(setup, name) for name in catalog.models})
        loads = explained(loads, log)
        yield Served(server=server, loads=loads, report=report_on(server))


def recorded_server(state: Path) -> Server | None:
    """The server that `running` keeps up for a state folder; None when none does."""
    try:
        server = Server(**json.loads((state / "engine" / STATE_FILE).read_text()))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spawn(start: Start, log: Path) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, so that Ctrl-C reaches this process alone and the end is in order."""
    with log.open("wb") as output:
        try:
            return subprocess.Popen(  # noqa: S603 - a list, no shell
                start.command,
                # Nobody writes to it; the embedded container takes its closing, on any death of ours, as its end.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **start.environment},
                start_new_session=True,
            )
        except OSError as error:
            msg = f"{start.command[0]} cannot be started ({error}); fix: see that it is a program of this machine"
            raise EngineError(msg) from error


def _wait_until_up(process: subprocess.Popen[bytes], server: Server, log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            said = lines[-1] if lines else "no output"
            msg = f"the {server.name} engine ended with exit code {process.returncode}: {said}; fix: see {log}"
            raise EngineError(msg)
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/ping", headers=server.headers, timeout=2, trust_env=False).is_success:
                return
        time.sleep(_POLL_S)
    msg = f"the {server.name} engine did not answer within {limit_s:g} s; fix: see {log}, or give it longer"
    raise EngineError(msg)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the server; after a while SIGKILL to it and to what it has started."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
    # Its session is its own, so nothing else can be in the group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
