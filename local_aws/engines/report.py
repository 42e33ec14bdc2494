"""Reports on a model server: its models, workers, processes and memory, and the excess over the instance's memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from cohost.callers import TOKEN_HEADER
from cohost.endpoint.invocation_payloads import is_worker_stopped, tiny_call
from cohost.endpoint.load_failures import read_log
from cohost.endpoint.probing import CALLS_OF_A_STOPPED_MODEL
from cohost.hardware.instances import INSTANCES
from local_aws.engines.engine import EngineError
from local_aws.engines.machine import (
    Gpu,
    Process,
    gpus,
    memory_by_process,
    processes_below,
    processes_of_container,
    worker_models,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_S = 10.0
_PAGE = 100
_LOADED = {"Healthy", "READY"}
# With this header field the batching handler answers its counters and settings (cohost/handler/cohost_service.py).
_COUNTERS = {"cohost-counters": "true"}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A model server to report on: its address, and its process or Docker container.

    `token` is the access token that callers must send (cohost/callers.py); no report shows it. `instance_type` is the
    type of the instance that the models will run on, None if unknown. `names` maps the server's model names to the
    catalog's where the two differ. `log` is the file with the server's output, None if this machine has no such file.
    """

    name: str
    url: str
    pid: int
    token: str = field(repr=False)
    container: str | None = None
    instance_type: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the header fields that every request to the server needs: the access token."""
        return {TOKEN_HEADER: self.token}


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """The state of one model: `workers` running workers of at most `max_workers`, and `waiting` queued requests.

    If the server reports the model as ready but calls get no answer, `silent` is the reason; otherwise it is None.
    `dtype` is the number format in which the batching handler computes, and `engine` the id of the engine process that
    serves the model; each is None if the handler does not report it.
    """

    name: str
    status: str
    workers: int
    max_workers: int
    waiting: int
    silent: str | None = None
    dtype: str | None = None
    engine: int | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """A server's models and processes, the machine's GPUs, and the faults: failed models and excess memory."""

    server: Server
    models: Sequence[ModelState]
    processes: Sequence[Process]
    gpus: Sequence[Gpu]
    faults: Sequence[str]

    @property
    def resident_mb(self) -> int:
        """Return the sum of all processes' resident memory in MiB; a shared page counts once for each process."""
        return sum(process.resident_mb for process in self.processes)

    @property
    def gpu_mb(self) -> int | None:
        """Return the sum of all processes' known GPU memory in MiB; None if no process's GPU memory is known."""
        known = [process.gpu_mb for process in self.processes if process.gpu_mb is not None]
        return sum(known) if known else None

    def content(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        content = asdict(self)
        del content["server"]["token"]
        return {
            **content,
            "resident_mb": self.resident_mb,
            "gpu_mb": self.gpu_mb,
            "fits": not self.faults,
        }


def report_on(server: Server) -> Report:
    """Make a report on a server, from its answers and from this machine's processes and GPUs.

    Raises:
        EngineError: the server does not answer.
    """
    models, counters = _ask(server)
    models = [replace(model, name=server.names.get(model.name, model.name)) for model in models]
    gpu_memory = memory_by_process()
    if server.container is None:
        workers = {pid: server.names.get(name, name) for pid, name in worker_models(counters).items()}
        engines = _engines(models)
        processes = processes_below(server.pid, workers, gpu_memory, engines)
    else:
        processes = processes_of_container(server.container, gpu_memory)
    report = Report(server=server, models=models, processes=processes, gpus=gpus(), faults=_not_ready(models))
    return replace(report, faults=[*report.faults, *_not_loaded(server), *_over(report)])


def _ask(server: Server) -> tuple[list[ModelState], str]:
    try:
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=_TIMEOUT_S, trust_env=False) as client:
            counters = client.get("/_cohost/metrics")
            models = [_called(client, _state(client, listed)) for listed in _listed(client)]
            return models, counters.text if counters.is_success else ""
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise EngineError(
            "engine-not-answering",
            f"server {server.name}",
            f"{server.url} does not answer as one of DJL Serving's API ({error!r})",
            fix="see that it runs",
        ) from error


def _listed(client: httpx.Client) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    token: str | None = None
    while True:
        query = {"limit": str(_PAGE)} | ({} if token is None else {"next_page_token": token})
        page = client.get("/models", params=query).raise_for_status().json()
        found += page["models"]
        if (token := page.get("nextPageToken")) is None:
            return found


def _state(client: httpx.Client, listed: Mapping[str, Any]) -> ModelState:
    name = listed["modelName"]
    described = client.get(f"/models/{name}").raise_for_status().json()[0]["models"][0]
    groups = described.get("workerGroups", [])
    return ModelState(
        name=name,
        status=described.get("status", listed.get("status", "?")),
        workers=sum(worker["status"] == "READY" for group in groups for worker in group["workers"]),
        max_workers=sum(group["maxWorkers"] for group in groups),
        waiting=described.get("requestInQueue", 0),
    )


def _called(client: httpx.Client, model: ModelState) -> ModelState:
    """Call a model with a tiny input, and return its state with `silent`, `dtype` and `engine` filled in.

    DJL Serving reports a model as ready even if its worker process has ended, so only a call shows that the process has
    ended. The content of the answer does not matter. If a model has several workers, calls reach them by turns, so a
    call that an ended worker got is repeated.
    """
    if model.status not in _LOADED:
        return model
    call: dict[str, Any] = {
        "url": f"/models/{quote(model.name, safe='')}/invoke",
        "json": {"inputs": tiny_call(None)[0]},
    }
    for _ in range(CALLS_OF_A_STOPPED_MODEL):
        try:
            answer = client.post(**call)
            if not is_worker_stopped(answer.status_code, answer.text):
                counters = _counters_in(client.post(**call, headers=_COUNTERS))
                return replace(model, dtype=counters.get("dtype"), engine=counters.get("engine_pid"))
        except httpx.HTTPError as error:
            return replace(model, silent=f"a call of it was not answered within {_TIMEOUT_S:g} s ({error!r})")
    return replace(model, silent="its process has ended and each call gets 400; fix: load it anew")


def _counters_in(answer: httpx.Response) -> Mapping[str, Any]:
    """Return the counters in an answer to a call for counters; an empty mapping if the handler has none."""
    try:
        counters = answer.json() if answer.is_success else None
    except ValueError:
        return {}
    return counters if isinstance(counters, dict) else {}


def _engines(models: Sequence[ModelState]) -> dict[int, str]:
    """Return the name of each engine process in a report, by process id."""
    names: dict[int, list[str]] = {}
    for model in models:
        if model.engine is not None:
            names.setdefault(model.engine, []).append(model.name)
    return {pid: f"engine of {', '.join(own)}" for pid, own in names.items()}


def _not_ready(models: Sequence[ModelState]) -> list[str]:
    reasons = ((model, "" if model.silent is None else f", but {model.silent}") for model in models)
    return [f"{model.name} is {model.status}{why}" for model, why in reasons if why or model.status not in _LOADED]


def _not_loaded(server: Server) -> list[str]:
    if server.log is None:
        return []
    return [failure.line() for failure in read_log(Path(server.log)).failures]


def _over(report: Report) -> list[str]:
    instance = INSTANCES.get(report.server.instance_type or "")
    if instance is None:
        return []
    faults = []
    if report.resident_mb > instance.memory_mib:
        faults.append(
            f"processes hold {report.resident_mb} MiB, {report.server.instance_type} has {instance.memory_mib}"
        )
    total = instance.gpus * instance.gpu_memory_mib
    if report.gpu_mb is not None and total and report.gpu_mb > total:
        faults.append(f"processes hold {report.gpu_mb} MiB of GPU memory, {report.server.instance_type} has {total}")
    return faults
