"""`GET /_cohost/endpoints`: what SageMaker does not tell, for tests and for whoever wants to look inside.

Answers `{"endpoints": [{"name", "status", "config", "variants": [{"name", "instance_type", "weight", "instances":
[{"id", "pid", "ready", "in_flight", "restarts", "log_file", "evictions", "models": [{"target", "model_id", "loaded",
"calls"}]}]}]}]}`, models with the least recently used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.sagemaker.endpoint import Endpoint
    from local_aws.sagemaker.fleet import Variant
    from local_aws.sagemaker.instance import Instance


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
    return {
        "name": variant.plan.name,
        "instance_type": variant.plan.instance_type,
        "weight": variant.weight,
        "instances": [_instance(instance) for instance in variant.instances],
    }


def _instance(instance: Instance) -> dict[str, Any]:
    cache = instance.cache
    models = [] if cache is None else cache.models
    return {
        "id": instance.instance_id,
        "pid": instance.pid,
        "ready": instance.ready,
        "in_flight": instance.in_flight,
        "restarts": instance.restarts,
        "log_file": str(instance.log_file),
        "evictions": 0 if cache is None else cache.evictions,
        "models": [
            {"target": model.target, "model_id": model.model_id, "loaded": model.loaded, "calls": model.calls}
            for model in models
        ],
    }
