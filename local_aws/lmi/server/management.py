"""The management routes: /models, /models/{name} and /server/metrics, and this project's own routes below /_cohost."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from local_aws.lmi.answers import compact
from local_aws.lmi.errors import BadRequest, JsonSyntax, MethodNotAllowed, ModelNotFound, NullPointer, ResourceNotFound
from local_aws.lmi.models.files import name_from_url
from local_aws.lmi.models.model import Model
from local_aws.lmi.models.serving_properties import MOST_WORKERS, java_int
from local_aws.lmi.server.http import Reply, connection_of, json_reply
from local_aws.lmi.server.prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from local_aws.lmi.models.registry import Registry


logger = logging.getLogger(__name__)

# Number in a load request → property that it overrides.
_NUMBERS = {
    "batch_size": "batch_size",
    "max_batch_delay": "max_batch_delay",
    "max_idle_time": "max_idle_time",
    "job_queue_size": "job_queue_size",
    "min_worker": "cpu.minWorkers",
    "max_worker": "cpu.maxWorkers",
}
# Texts of the real server's exceptions (recorded: 01).
_NO_BODY = 'Cannot invoke "ai.djl.serving.http.LoadModelRequest.getModelUrl()" because "<local4>" is null'
_NO_URL = 'Cannot invoke "String.startsWith(String)" because "<parameter1>" is null'
_SHAPES = "See https://github.com/google/gson/blob/main/Troubleshooting.md#unexpected-json-structure"
_TOKENS = {list: "BEGIN_ARRAY", str: "STRING", int: "NUMBER", float: "NUMBER", bool: "BOOLEAN"}
_LAST_FIELD = re.compile(r'"([^"]*)"\s*:[^"]*$')


@dataclass(frozen=True)
class LoadRequest:
    """A request to load a model; if `synchronous`, its answer waits until the model is loaded."""

    model: Model
    synchronous: bool


def read_load_request(request: Request, body: bytes) -> LoadRequest:
    """Read the load request of `POST /models`, from a JSON body if the content type is JSON, else from the query.

    If the query has no model name, the name comes from the model's address. Where the real server fails with an
    internal exception, this function raises the same exception, and the log names the request's error.

    Raises:
        NullPointer: the JSON object is missing, or has no url or no model_name.
        JsonSyntax: the body is not a JSON object.
        BadRequest: the query has no url.
        NumberFormat: a number cannot be read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        fields = _load_fields(body)
        url, name = _field(fields, "url", _NO_URL), _field(fields, "model_name", None)
    else:
        fields = dict(request.query_params)
        url = _parameter(fields, "url", "")
        name = _parameter(fields, "model_name", name_from_url(url))
    model = Model(name, url, overrides=_numbers(fields))
    return LoadRequest(model, str(fields.get("synchronous", "true")).lower() == "true")


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body holds.

    Raises:
        BadRequest: the body is not a JSON object.
    """
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("The body is not a JSON object.")
    return value


def _load_fields(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a load request's body; any other body raises the real server's exception."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text) if text.strip() else None
    except ValueError as error:
        logger.warning("the body of a load request is not JSON: %s", error)
        raise JsonSyntax(_syntax_error(text, error)) from error
    if value is None:
        logger.warning("a load request has no body; send a JSON object with model_name and url")
        raise NullPointer(_NO_BODY)
    if not isinstance(value, dict):
        logger.warning("the body of a load request is not a JSON object with model_name and url")
        column = len(text) - len(text.lstrip()) + (2 if isinstance(value, list) else 1)
        token = _TOKENS[type(value)]
        raise JsonSyntax(f"Expected BEGIN_OBJECT but was {token} at line 1 column {column} path $\n{_SHAPES}")
    return value


def _syntax_error(text: str, error: ValueError) -> str:
    """Return Gson's recorded text for a body that ends too early; for other errors the text of Python's parser."""
    position = getattr(error, "pos", 0)
    if text[position:].strip():
        return str(error)
    field = _LAST_FIELD.search(text)
    line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    return f"End of input at line {line} column {column} path $.{field[1] if field else ''}"


def _field(fields: Mapping[str, Any], name: str, exception: str | None) -> str:
    """Return a field of a load request as text; numbers and booleans become text, as in Gson."""
    value = fields.get(name)
    if isinstance(value, dict | list):
        raise JsonSyntax(f"Expected a string but was {_TOKENS.get(type(value), 'BEGIN_OBJECT')} path $.{name}")
    if value is None or value == "":
        logger.warning("a load request has no %s; send a JSON object with model_name and url", name)
        raise NullPointer(exception)
    return value if isinstance(value, str) else json.dumps(value)


def _parameter(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name) or default
    if not value:
        raise BadRequest(f"Parameter {name} is required.")
    return str(value)


def _numbers(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of a load request by property name; a negative number counts as absent, as in DJL Serving."""
    numbers = {target: java_int(str(fields[name])) for name, target in _NUMBERS.items() if name in fields}
    return {target: number for target, number in numbers.items() if number >= 0}


_LARGEST_PAGE = 100
# The real server removes a model that never had workers, and then fails as it ends them (recorded: 01, exchange 54).
_NO_POOL = 'Cannot invoke "ai.djl.serving.wlm.WorkerPool.decreaseRef()" because "<local2>" is null'
_DIE = "die"
_FAULTS = (_DIE, "hang", "lose_device")
_NO_PROMETHEUS = (
    "Prometheus is not enabled, set SERVING_PROMETHEUS environment var to true to enable prometheus metrics"
)


async def manage(registry: Registry, request: Request, segments: Sequence[str], body: bytes) -> Reply:
    """Answer a request below /models or /server.

    Raises:
        Fault: the route, method, model or a parameter is not valid, or a model cannot be loaded.
    """
    if segments[1] == "server":
        return _server(registry, segments)
    name = segments[2] if len(segments) > 2 else None  # noqa: PLR2004 - "", "models", name
    if name is None:
        return await _manage_all(registry, request, body)
    version = segments[3] if len(segments) > 3 else None  # noqa: PLR2004 - and a version
    return await _manage_one(registry, request, name, version)


async def _manage_all(registry: Registry, request: Request, body: bytes) -> Reply:
    if request.method == "GET":
        return _list(registry, request)
    if request.method == "POST":
        return await _register(registry, request, body)
    raise MethodNotAllowed


async def _manage_one(registry: Registry, request: Request, name: str, version: str | None) -> Reply:
    if request.method not in {"GET", "PUT", "DELETE"}:
        raise MethodNotAllowed
    if version:
        raise ModelNotFound(f"Workflow not found: {name}/{version}")
    if request.method == "PUT":
        return await _scale(registry, request, name)
    if request.method == "DELETE":
        model = registry.models.get(name)
        if model is not None and model.locked and (connection := connection_of(request.scope)):
            connection.stick()
        await registry.unregister(name)
        if model is not None and model.pool is None:
            raise NullPointer(_NO_POOL)
        return _status(f'Model or workflow "{name}" unregistered')
    if registry.is_leaving(name, without_workers=True):
        # the real server repeats the words (recorded: 05)
        raise ModelNotFound(f"Workflow not found: Workflow not found: {name}")
    model = registry.get(name, described=True)
    return json_reply([{"workflowName": name, "models": [model.describe()]}])


def _list(registry: Registry, request: Request) -> Reply:
    limit = _number(request, "limit", _LARGEST_PAGE)
    limit = limit if 0 <= limit <= _LARGEST_PAGE else _LARGEST_PAGE
    start = max(_number(request, "next_page_token", 0), 0)
    names = sorted(registry.models)
    end = min(start + limit, len(names))
    models = [registry.models[name] for name in names[start:end]]
    page: dict[str, Any] = {"nextPageToken": str(end)} if end < len(names) else {}
    page["models"] = [
        {"modelName": model.name, "modelUrl": model.url, "status": model.status.value} for model in models
    ]
    return json_reply(page)


async def _register(registry: Registry, request: Request, body: bytes) -> Reply:
    load = read_load_request(request, body)
    if load.synchronous:
        await registry.register(load.model)
        return _status(f'Model "{load.model.name}" registered.')
    registry.register_later(load.model)
    return _status(f'Model "{load.model.name}" registration scheduled.', HTTPStatus.ACCEPTED)


async def _scale(registry: Registry, request: Request, name: str) -> Reply:
    model = registry.get(name)
    least, most = _number(request, "min_worker", -1), _number(request, "max_worker", -1)
    if least > most >= 0:
        raise BadRequest(f"min_worker={least} is above max_worker={most}; give a max_worker of at least min_worker")
    if least > MOST_WORKERS:
        raise BadRequest(f"min_worker={least} is above the {MOST_WORKERS} that this container starts")
    if model.pool is not None:
        await model.pool.scale(least, most)
    return _status(f'Workflow "{name}" worker scaled. New Worker configuration min workers:{least} max workers:{most}')


def counters(registry: Registry) -> Reply:
    """Answer with the counters of every model as Prometheus text."""
    return Reply(HTTPStatus.OK, exposition(registry.models).encode(), {"content-type": CONTENT_TYPE})


def worker_processes(registry: Registry) -> Reply:
    """Answer with `pid`, `model_dir` and `started` (seconds since 1970) of every running worker process.

    The list includes processes that belong to no model any more, which the real server leaves running.
    """
    processes = registry.worker_processes.items()
    return json_reply(
        [{"pid": pid, "model_dir": process.model_dir, "started": process.started} for pid, process in processes]
    )


async def break_worker(registry: Registry, body: bytes) -> Reply:
    """Inject a fault into the oldest worker of a model: {"model": NAME, "fault": "die" | "hang" | "lose_device"}.

    "die" kills the worker's process; the answer is sent once the process has ended. After "hang" each later forward
    pass of the process hangs; after "lose_device" each later one fails as on a lost device.

    Raises:
        BadRequest: the body has another form, or the model has no worker with a process.
        ModelNotFound: there is no model of this name.
    """
    wanted = json_object(body)
    name, fault = wanted.get("model"), wanted.get("fault")
    if not isinstance(name, str) or fault not in _FAULTS:
        allowed = f'{{"model": NAME, "fault": one of {", ".join(_FAULTS)}}}'
        raise BadRequest(f"body: {compact(wanted)} names no model or fault; allowed: {allowed}; fix: name both")
    pool = registry.get(name).pool
    processes = [worker.process for worker in pool.workers if worker.process.ready] if pool is not None else []
    if not processes:
        raise BadRequest(f"model: {name} has no worker process; allowed: a loaded model; fix: load it again")
    if fault == _DIE:
        await processes[0].kill()
    else:
        processes[0].inject(fault)
    return json_reply({"model": name, "fault": fault, "pid": processes[0].pid})


def _server(registry: Registry, segments: Sequence[str]) -> Reply:
    if segments[2:] != ["metrics"]:
        raise ResourceNotFound
    if os.environ.get("SERVING_PROMETHEUS", "").lower() != "true":
        raise BadRequest(_NO_PROMETHEUS)
    return counters(registry)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    return default if text is None else java_int(text)


def _status(text: str, status: int = HTTPStatus.OK) -> Reply:
    return json_reply({"status": text}, status)
