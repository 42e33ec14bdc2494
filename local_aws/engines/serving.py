"""Run an engine with a catalog's models: write their folders, start it, load them, report, and end all processes.

The function `servers_of` lists the servers to report on: the engine that `cohost local run` started, and the containers
of the local AWS emulator.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from cohost.archives.archive import model_files
from cohost.callers import new_token, write_private
from cohost.catalog.serving import code_of, properties_of, requirements_for
from cohost.deploy import local_aws as local
from cohost.deploy.local_aws import check_port
from cohost.endpoint.load_failures import lacks_reason, read_log
from cohost.hardware.images import image_uri, parse_image
from cohost.routing import ARCHIVE_SUFFIX
from local_aws.engines.engine import EngineError, Setup
from local_aws.engines.proxy import guarded_proxy
from local_aws.engines.report import Report, Server, report_on
from local_aws.lmi.container import address_of
from local_aws.lmi.models.hub import Hub, HubError
from local_aws.sagemaker.debug.pages import PATH as INTROSPECTION_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from local_aws.engines.engine import Engine, StartCommand


_LOAD_TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """The outcome of loading one model: `fault` is None on success, else the status and message of the answer."""

    name: str
    seconds: float
    fault: str | None


def local_weights(catalog: Catalog, hubs: Sequence[Path]) -> dict[str, Path]:
    """Return each model's folder of weights on this machine; a model without one gets its weights from the Hub."""
    hub, found = Hub(hubs), {}
    for name, entry in catalog.models.items():
        with contextlib.suppress(HubError):
            found[name] = hub.resolve(entry.model_id, entry.revision).resolve()
    return found


def write_models(catalog: Catalog, engine: Engine, setup: Setup) -> None:
    """Write each model's unpacked archive to `setup.models`/NAME/model, the layout that SageMaker gives to containers.

    If a model's weights are on this machine, `option.model_id` is their folder and `option.revision` is omitted;
    everything else equals the archive that a deploy publishes.
    """
    shutil.rmtree(setup.models, ignore_errors=True)
    image = parse_image(catalog.endpoint.image)
    for name, entry in catalog.models.items():
        # Without an endpoint there is no S3, so the weights come from this machine or the Hub.
        properties = properties_of(entry.model_copy(update={"weights": "hub"}), catalog.endpoint, name)
        if (weights := engine.weights_url(setup, name)) is not None:
            properties = {key: text for key, text in properties.items() if key != "option.revision"}
            properties["option.model_id"] = weights
        folder = setup.models / name / "model"
        folder.mkdir(parents=True)
        for file, content in model_files(properties, requirements_for(entry, image), code_of(entry)).items():
            (folder / file).write_bytes(content)


def load_models(server: Server, models: Mapping[str, str]) -> list[LoadResult]:
    """Make a server load models, one after another as on an endpoint; `models` maps model names to folders."""
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=_LOAD_TIMEOUT_S, trust_env=False) as client:
        return [_load(client, name, folder) for name, folder in models.items()]


def explained(loads: Sequence[LoadResult], log: Path) -> list[LoadResult]:
    """Add a reason to each fault that states none: the last error of the model's worker in the server's log."""
    unexplained = [load for load in loads if load.fault is not None and lacks_reason(load.fault)]
    if not unexplained:
        return list(loads)
    reader = read_log(log)
    reasons = {load.name: reader.reason(load.name) for load in unexplained}
    return [
        replace(load, fault=f"{load.fault} ({reasons[load.name]})") if reasons.get(load.name) else load
        for load in loads
    ]


def _load(client: httpx.Client, name: str, folder: str) -> LoadResult:
    begun = time.monotonic()
    try:
        answer = client.post("/models", json={"model_name": name, "url": folder})
        fault = None if answer.is_success else f"{answer.status_code} {_message(answer)}"
    except httpx.HTTPError as error:
        fault = f"no answer: {error}"
    return LoadResult(name=name, seconds=time.monotonic() - begun, fault=fault)


def _message(answer: httpx.Response) -> str:
    try:
        content: Any = answer.json()
    except ValueError:
        return answer.text.strip() or answer.reason_phrase
    message = content.get("message") if isinstance(content, dict) else None
    return str(message or answer.reason_phrase)


STATE_FILE = "engine.json"
_POLL_S = 0.2
_STOP_GRACE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class RunningEngine:
    """A running engine with its models: the outcome of each load, and the report made after all loads."""

    server: Server
    loads: Sequence[LoadResult]
    report: Report

    @property
    def faults(self) -> list[str]:
        """Return the reasons why not all models fit: first the failed loads, then the faults in the report."""
        refused = [f"{load.name} was not loaded: {load.fault}" for load in self.loads if load.fault is not None]
        return [*refused, *self.report.faults]

    def content(self) -> dict[str, Any]:
        """Return the loads and the report as JSON values."""
        loads = [asdict(load) for load in self.loads]
        return {**self.report.content(), "loads": loads, "faults": self.faults, "fits": not self.faults}


def setup_for(catalog: Catalog, *, state: Path, port: int, hubs: Sequence[Path], region: str) -> Setup:
    """Return the setup for an engine that serves a catalog; the engine's files go to `state`/engine.

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
        port=port or free_port(),
        upstream_port=free_port(),
        token=new_token(),
        environment=catalog.endpoint.environment,
        handlers={entry.handler for entry in catalog.models.values()},
        hubs=[hub.resolve() for hub in hubs],
        weights=local_weights(catalog, hubs),
    )


@contextlib.contextmanager
def running(
    engine: Engine, catalog: Catalog, setup: Setup, *, start_timeout_s: float, warn: Callable[[str], None]
) -> Iterator[RunningEngine]:
    """Run an engine and load the catalog's models; at the end of the `with` block, end the engine's processes.

    Before the start, `warn` is called with the engine's warning for the user, if it has one.

    Raises:
        EngineError: a requirement is missing, the port is in use, or the server does not answer within the time limit.
    """
    check_port(setup.port)
    engine.check(setup)
    write_models(catalog, engine, setup)
    instance_type = catalog.endpoint.instance_type
    started = started_engine(engine, setup, instance_type=instance_type, start_timeout_s=start_timeout_s, warn=warn)
    with started as server, contextlib.ExitStack() as stack:
        state_file = setup.scratch / STATE_FILE
        stack.callback(state_file.unlink, missing_ok=True)
        write_private(state_file, json.dumps(asdict(server)))
        loads = load_models(server, {name: engine.model_url(setup, name) for name in catalog.models})
        loads = explained(loads, _log_of(engine, setup))
        yield RunningEngine(server=server, loads=loads, report=report_on(server))


@contextlib.contextmanager
def started_engine(
    engine: Engine,
    setup: Setup,
    *,
    instance_type: str | None,
    start_timeout_s: float,
    warn: Callable[[str], None],
) -> Iterator[Server]:
    """Run an engine without models; at the end of the `with` block, end the engine and all its processes.

    Raises:
        EngineError: the server cannot be started, or does not answer within the time limit.
    """
    log = _log_of(engine, setup)
    with contextlib.ExitStack() as stack:
        stack.callback(engine.stop)
        start = engine.start(setup)
        if start.warning is not None:
            warn(start.warning)
        if start.upstream is not None:
            stack.enter_context(guarded_proxy(setup.port, setup.token, start.upstream))
        process = _spawn(start, log)
        stack.callback(_end, process)
        server = Server(
            name=engine.name,
            url=f"http://127.0.0.1:{setup.port}",
            pid=process.pid,
            token=setup.token,
            container=engine.container,
            instance_type=instance_type,
            log=str(log),
        )
        _wait_until_up(process, server, log, start_timeout_s)
        yield server


def _log_of(engine: Engine, setup: Setup) -> Path:
    return setup.scratch / f"{engine.name}.log"


def recorded_server(state: Path) -> Server | None:
    """Return the server that `running` runs for a state folder, also in another process; None if none runs."""
    try:
        server = Server(**json.loads((state / "engine" / STATE_FILE).read_text()))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return server


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spawn(start: StartCommand, log: Path) -> subprocess.Popen[bytes]:
    """Start the server in a new process session: Ctrl-C reaches only this process, which then stops the server."""
    with log.open("wb") as output:
        try:
            return subprocess.Popen(  # noqa: S603 - a list, no shell
                start.command,
                # The embedded container ends when this pipe closes, however this process dies; nothing is written.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **start.environment},
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                "engine-not-startable",
                start.command[0],
                f"cannot be started ({error})",
                fix="see that it is a program of this machine",
            ) from error


def _wait_until_up(process: subprocess.Popen[bytes], server: Server, log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            said = f"ended with exit code {process.returncode}: {lines[-1] if lines else 'no output'}"
            raise EngineError("engine-ended", f"--engine {server.name}", said, fix=f"correct what {log} names")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/ping", headers=server.headers, timeout=2, trust_env=False).is_success:
                return
        time.sleep(_POLL_S)
    raise EngineError(
        "engine-not-answering",
        f"--engine {server.name}",
        f"did not answer within {limit_s:g} s",
        fix=f"look into {log} for what it waits for",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the server; when it has ended, or after 20 s, send SIGKILL to its whole process group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
    # The server was started in its own session, so only its own descendants can be in its process group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def servers_of(state: Path) -> list[Server]:
    """Return the servers of a state folder: that of `cohost local run`, and the containers of emulated endpoints.

    Raises:
        EngineError: no server runs for this state folder.
    """
    engine = recorded_server(state)
    servers = [engine] if engine is not None else []
    if (aws := local.find(state)) is not None:
        servers += endpoint_servers(aws.ask(INTROSPECTION_PATH))
    if not servers:
        raise EngineError(
            "engine-not-running",
            "--state",
            f"no server runs in {str(state)!r}",
            allowed="an engine or an endpoint",
            fix="start one with `cohost local run`, deploy one to `cohost local up`, or name its folder",
        )
    return servers


def endpoint_servers(snapshot: Mapping[str, Any]) -> Iterator[Server]:
    """Yield the server of each ready container in a snapshot of the endpoints (`INTROSPECTION_PATH`)."""
    for endpoint in snapshot["endpoints"]:
        for variant in endpoint["variants"]:
            for instance in variant["instances"]:
                # The containers of inference components are copies on an instance.
                for container in instance.get("copies", [instance]):
                    if container["ready"] and (address := address_of(container["pid"])) is not None:
                        url, token = address
                        yield Server(
                            name=f"{endpoint['name']}/{variant['name']}/{container['id']}",
                            url=url,
                            token=token,
                            pid=container["pid"],
                            instance_type=variant["instance_type"],
                            names=_names(container.get("models", [])),
                            log=container["log_file"],
                        )


def _names(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the catalog's name of each model in a container, by the id that SageMaker gave to the model."""
    return {model["model_id"]: model["target"].removesuffix(ARCHIVE_SUFFIX) for model in models}
