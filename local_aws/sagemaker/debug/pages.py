"""The pages `/_cohost/endpoints` and `/_cohost/faults`: the internal state, and fault injection.

`GET /_cohost/endpoints` answers `{"endpoints": [{"name", "status", "config", "variants": [{"name", "instance_type",
"weight", "instances": […]}]}]}`. An instance of a variant that names a model is `{"id", "pid", "ready", "in_flight",
"restarts", "log_file", "evictions", "models": [{"target", "model_id", "loaded", "calls"}]}`, `models` with the least
recently used model first. An instance of a variant made of inference components is `{"id", "copies": [{"component",
"id", "pid", "ready", "in_flight", "restarts", "log_file"}]}`.

`PUT /_cohost/faults` with `{"worker_fault": {"endpoint": NAME, "model": NAME, "fault": "die" | "hang" |
"lose_device"}}` injects the fault at once into one container that has the model loaded. The answer's `worker_fault`
names the container. `model` is the model's name in the catalog, or its name in calls (TargetModel, `model_name`). `die`
kills the worker process. After `hang`, each forward pass in the worker process blocks for ever; after `lose_device`,
each forward pass raises the error of a lost device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httpx
from starlette.responses import JSONResponse, Response

from cohost.archives.archive import server_name
from cohost.routing import target_model
from local_aws.sagemaker.fault_injection import SwitchError
from local_aws.sagemaker.hosting.production_variants import ModelVariant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from local_aws.kit.named_resources import Collection
    from local_aws.sagemaker.fault_injection import FaultSwitches
    from local_aws.sagemaker.hosting.component_variant import ComponentVariant
    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.production_variants import Variant
    from local_aws.sagemaker.hosting.replicas import Replica


PATH: Final = "/_cohost/endpoints"


def snapshot(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Describe all endpoints with their instances and models, as JSON values."""
    return {"endpoints": [_endpoint(endpoint) for endpoint in endpoints]}


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    variants = [] if endpoint.fleet is None else endpoint.fleet.variants.values()
    return {
        "name": endpoint.name,
        "status": endpoint.status,
        "config": endpoint.config_name,
        "variants": [_variant(variant) for variant in variants],
    }


def _variant(variant: Variant) -> dict[str, Any]:
    if isinstance(variant, ModelVariant):
        instances = [_instance(replica) for replica in variant.replicas]
    else:
        instances = _component_instances(variant)
    return {
        "name": variant.plan.name,
        "instance_type": variant.plan.instance_type,
        "weight": variant.weight,
        "instances": instances,
    }


def _component_instances(variant: ComponentVariant) -> list[dict[str, Any]]:
    return [
        {
            "id": instance.instance_id,
            "copies": [
                {"component": copy.plan.name, **_container(copy.replica)}
                for copy in variant.placed
                if copy.instance is instance
            ],
        }
        for instance in variant.instances
    ]


def _instance(replica: Replica) -> dict[str, Any]:
    cache = replica.cache
    models = [] if cache is None else cache.models
    return {
        **_container(replica),
        "evictions": 0 if cache is None else cache.evictions,
        "models": [
            {"target": model.target, "model_id": model.model_id, "loaded": model.loaded, "calls": model.calls}
            for model in models
        ],
    }


def _container(replica: Replica) -> dict[str, Any]:
    return {
        "id": replica.placement.replica_id,
        "pid": replica.pid,
        "ready": replica.ready,
        "in_flight": replica.in_flight,
        "restarts": replica.restarts,
        "log_file": str(replica.log_file),
    }


FAULTS: Final = ("die", "hang", "lose_device")
_WORKER_FAULT: Final = "worker_fault"
_MEMBERS: Final = ("endpoint", "model", "fault")


@dataclass(frozen=True, kw_only=True)
class WorkerFault:
    """A request to inject `fault` into a worker process of `model` in one container of `endpoint`."""

    endpoint: str
    model: str
    fault: str


class FaultPage:
    """Answer the page `/_cohost/faults`; worker faults go to containers of `endpoints`."""

    def __init__(self, switches: FaultSwitches, endpoints: Collection[Endpoint]) -> None:
        self._switches = switches
        self._endpoints = endpoints

    async def answer(self, request: Request) -> Response:
        """Answer GET, PUT and DELETE; an invalid PUT changes nothing."""
        struck: dict[str, Any] = {}
        try:
            if request.method == "PUT":
                struck = await self._put(await _body(request))
            elif request.method == "DELETE":
                self._switches.clear()
        except SwitchError as fault:
            return JSONResponse({"message": str(fault)}, HTTPStatus.BAD_REQUEST)
        return JSONResponse({**self._switches.state(), **struck})

    async def _put(self, body: object) -> dict[str, Any]:
        """Set the fault switches and inject the worker fault of a body; return the container that got the fault."""
        rest, wanted = _apart(body)
        checked = self._switches.check(rest)
        struck = {} if wanted is None else {_WORKER_FAULT: await self._strike(_read(wanted))}
        self._switches.set(checked)
        return struck

    async def _strike(self, fault: WorkerFault) -> dict[str, str]:
        known: set[str] = set()
        for replica in self._replicas(fault.endpoint):
            loaded = await _loaded(replica)
            known |= loaded.keys()
            for name in filter(loaded.__contains__, (fault.model, target_model(fault.model), server_name(fault.model))):
                await _send(replica, loaded[name], fault)
                container = replica.placement.replica_id
                return {"endpoint": fault.endpoint, "model": name, "fault": fault.fault, "id": container}
        raise SwitchError(
            f"{_WORKER_FAULT}.model: {fault.model!r} is not loaded on endpoint {fault.endpoint}; allowed: "
            f"{', '.join(sorted(known)) or 'none, since no model is loaded'}; fix: call the model first"
        )

    def _replicas(self, name: str) -> Iterable[Replica]:
        endpoint = self._endpoints.find(name)
        if endpoint is None or endpoint.fleet is None:
            there = ", ".join(one.name for one in self._endpoints if one.fleet is not None)
            raise SwitchError(
                f"{_WORKER_FAULT}.endpoint: {name!r} is no endpoint that runs; allowed: {there or 'none, as none runs'}"
                "; fix: name one that runs, or deploy it"
            )
        for variant in endpoint.fleet.variants.values():
            yield from variant.replicas if isinstance(variant, ModelVariant) else (c.replica for c in variant.placed)


async def _body(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except ValueError:
        raise SwitchError("the body is not JSON; allowed: an object of switches; fix: send one") from None


def _apart(body: object) -> tuple[object, object | None]:
    """Split the body of a PUT into the fault switches and the worker fault; the latter is None if the body has none."""
    if not isinstance(body, dict):
        return body, None
    return {name: value for name, value in body.items() if name != _WORKER_FAULT}, body.get(_WORKER_FAULT)


def _read(wanted: object) -> WorkerFault:
    given = wanted if isinstance(wanted, dict) else {}
    if set(given) != set(_MEMBERS) or not all(isinstance(value, str) for value in given.values()):
        raise SwitchError(
            f"{_WORKER_FAULT}: {wanted!r} is none; allowed: an object of the texts {', '.join(_MEMBERS)}; fix: send one"
        )
    fault = WorkerFault(**given)
    if fault.fault not in FAULTS:
        raise SwitchError(
            f"{_WORKER_FAULT}.fault: {fault.fault!r} is no fault; allowed: {', '.join(FAULTS)}; fix: name one of these"
        )
    return fault


async def _loaded(replica: Replica) -> dict[str, str]:
    try:
        return await replica.loaded()
    except httpx.HTTPError:
        # The container is being replaced: it has no worker process that a fault could be caused in.
        return {}


async def _send(replica: Replica, model_id: str, fault: WorkerFault) -> None:
    container = replica.placement.replica_id
    try:
        answer = await replica.worker_fault(model_id, fault.fault)
    except httpx.TransportError as error:
        raise SwitchError(
            f"{_WORKER_FAULT}: container {container} did not answer ({error}); allowed: one that runs; "
            "fix: wait until the endpoint answers"
        ) from error
    if not answer.is_success:
        raise SwitchError(
            f"{_WORKER_FAULT}: container {container} answered {answer.status_code} "
            f"{' '.join(answer.text.split())}; allowed: a model with a worker; fix: call the model first"
        )
