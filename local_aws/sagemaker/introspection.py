"""`GET /_cohost/endpoints`: what SageMaker does not tell, for tests and for whoever wants to look inside.

Answers `{"endpoints": [{"name", "status", "config", "variants": [{"name", "instance_type", "weight", "instances":
[…]}]}]}`. An instance of a variant that names a model is `{"id", "pid", "ready", "in_flight", "restarts", "log_file",
"evictions", "models": [{"target", "model_id", "loaded", "calls"}]}`, models with the least recently used first. An
instance of a variant made of inference components is `{"id", "copies": [{"component", "id", "pid", "ready",
"in_flight", "restarts", "log_file"}]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local_aws.sagemaker.model_variant import ModelVariant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.sagemaker.component_variant import ComponentVariant
    from local_aws.sagemaker.endpoint import Endpoint
    from local_aws.sagemaker.fleet import Variant
    from local_aws.sagemaker.replica import Replica


PATH: Final = "/_cohost/endpoints"


def snapshot(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """All endpoints with their instances and models, as JSON values."""
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
        instances = _machines(variant)
    return {
        "name": variant.plan.name,
        "instance_type": variant.plan.instance_type,
        "weight": variant.weight,
        "instances": instances,
    }


def _machines(variant: ComponentVariant) -> list[dict[str, Any]]:
    return [
        {
            "id": machine.instance_id,
            "copies": [
                {"component": copy.plan.name, **_container(copy.replica)}
                for copy in variant.placed
                if copy.machine is machine
            ],
        }
        for machine in variant.machines
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
        "id": replica.seat.replica_id,
        "pid": replica.pid,
        "ready": replica.ready,
        "in_flight": replica.in_flight,
        "restarts": replica.restarts,
        "log_file": str(replica.log_file),
    }
