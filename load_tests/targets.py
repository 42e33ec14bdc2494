"""Finds what is called: the stack's endpoint, an endpoint by name, or a container by its URL."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from cohost.catalog import Catalog, load_catalog
from cohost.client import CohostClient
from cohost.report.run import Model, Target
from cohost.routing import ARCHIVE_SUFFIX, target_model
from load_tests.errors import LoadError
from load_tests.options import TASKS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from botocore.credentials import Credentials

LIST_TIMEOUT_S = 5
_LOCAL = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Destination:
    """Where one model's calls go: the path below the target's URL, and header fields."""

    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What is called, how each model is reached, and with which credentials (None: calls are not signed)."""

    target: Target
    models: tuple[Model, ...]
    destinations: tuple[Destination, ...]
    revisions: tuple[str | None, ...]
    credentials: Credentials | None

    @property
    def container(self) -> bool:
        """Whether a container answers by itself, without SageMaker."""
        return self.target.kind == "container"


def resolve(options: argparse.Namespace) -> Resolved:
    """Find target and models by the options and the environment.

    Raises:
        CohostError: no target, no such model, or a model whose task nobody states.
    """
    wanted = _wanted(options)
    catalog = _catalog(options)
    if options.host:
        return _container(options, wanted, catalog)
    if options.endpoint:
        return _endpoint(options, wanted, catalog)
    return _stack(options, wanted, catalog)


def _wanted(options: argparse.Namespace) -> dict[str, float]:
    """Weights by model as the options name them; empty for all."""
    if options.target_model:
        return {options.target_model.removesuffix(ARCHIVE_SUFFIX): 1.0}
    return {name.removesuffix(ARCHIVE_SUFFIX): weight for name, weight in (options.models or {}).items()}


def _catalog(options: argparse.Namespace) -> Catalog | None:
    path = Path(options.catalog)
    return load_catalog(path) if path.is_file() else None


def _models(
    options: argparse.Namespace, weights: Mapping[str, float], catalog: Catalog | None
) -> tuple[tuple[Model, ...], tuple[str | None, ...]]:
    entries = {} if catalog is None else catalog.models
    models, revisions = [], []
    for name, weight in weights.items():
        entry = entries.get(name)
        task = options.task or (entry.task if entry else None)
        if task is None:
            msg = (
                f"model {name!r}: its task is not known, because {options.catalog} does not have it; allowed: "
                f"{', '.join(TASKS)}; fix: name the task with --task, or the deployed catalog with --catalog"
            )
            raise LoadError(msg)
        known = {"model_id": entry.model_id, "handler": entry.handler} if entry else {}
        models.append(Model(name=name, task=task, weight=weight, **known))
        revisions.append(entry.revision if entry else None)
    return tuple(models), tuple(revisions)


def _stack(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    session = boto3.Session()
    client = CohostClient.from_stack(options.stack, session=session)
    weights = wanted or dict.fromkeys(client.deployment.models, 1.0)
    models, revisions = _models(options, weights, catalog)
    deployment = client.deployment
    return Resolved(
        target=_sagemaker(session, deployment.region, deployment.endpoint_name, deployment.topology),
        models=models,
        destinations=tuple(_sagemaker_destination(client.route(model.name).arguments()) for model in models),
        revisions=revisions,
        credentials=_credentials(session),
    )


def _endpoint(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    session = boto3.Session()
    weights = wanted or dict.fromkeys(catalog.models if catalog else (), 1.0)
    if not weights:
        msg = (
            f"--endpoint {options.endpoint!r}: no model is named, and there is no catalog at {options.catalog}; "
            "allowed: models of the endpoint; fix: name them with --models, or their catalog with --catalog"
        )
        raise LoadError(msg)
    models, revisions = _models(options, weights, catalog)
    calls = [{"EndpointName": options.endpoint, "TargetModel": target_model(model.name)} for model in models]
    if session.region_name is None:
        raise LoadError(
            "--endpoint: no region is set; allowed: any AWS region; fix: export AWS_DEFAULT_REGION=us-east-1"
        )
    return Resolved(
        target=_sagemaker(session, session.region_name, options.endpoint, None),
        models=models,
        destinations=tuple(map(_sagemaker_destination, calls)),
        revisions=revisions,
        credentials=_credentials(session),
    )


def _container(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    url = urllib.parse.urlsplit(options.host)
    if url.scheme not in {"http", "https"} or not url.hostname or url.path.strip("/"):
        msg = f"--host {options.host!r}; allowed: a container's URL without a path; fix: e.g. http://127.0.0.1:8080"
        raise LoadError(msg)
    base = f"{url.scheme}://{url.netloc}"
    weights = wanted or dict.fromkeys(_list_models(base), 1.0)
    models, revisions = _models(options, weights, catalog)
    paths = [f"/invocations?model_name={urllib.parse.quote(model.name, safe='')}" for model in models]
    return Resolved(
        target=Target(kind="container", url=base, emulated=False),
        models=models,
        destinations=tuple(Destination(path, {}) for path in paths),
        revisions=revisions,
        credentials=None,
    )


def _list_models(base: str) -> list[str]:
    """The models that a container holds, by DJL Serving's management API."""
    try:
        with urllib.request.urlopen(f"{base}/models?limit=1000", timeout=LIST_TIMEOUT_S) as answer:  # noqa: S310 - http only
            names = [str(model["modelName"]) for model in json.load(answer)["models"]]
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError) as error:
        msg = f"--host {base!r}: its models cannot be listed ({error}); fix: start it, or name models with --models"
        raise LoadError(msg) from error
    if not names:
        raise LoadError(f"--host {base!r}: the container holds no model; fix: load one with POST /models")
    return names


def _credentials(session: boto3.Session) -> Credentials:
    found = session.get_credentials()
    if found is None:
        raise LoadError("no AWS credentials were found; allowed: any that boto3 finds; fix: export AWS_PROFILE=NAME")
    return found


def _sagemaker_destination(arguments: Mapping[str, str]) -> Destination:
    """Path and header fields of InvokeEndpoint for its arguments, by the service's own description in botocore."""
    operation = get_session().get_service_model("sagemaker-runtime").operation_model("InvokeEndpoint")
    members: Mapping[str, Any] = getattr(operation.input_shape, "members", {})
    headers = {members[key].serialization["name"]: value for key, value in arguments.items() if key != "EndpointName"}
    name = urllib.parse.quote(arguments["EndpointName"], safe="")
    return Destination(operation.http["requestUri"].replace("{EndpointName}", name), headers)


def _sagemaker(session: boto3.Session, region: str, endpoint_name: str, topology: str | None) -> Target:
    url = session.client("sagemaker-runtime", region_name=region).meta.endpoint_url
    return Target(
        kind="sagemaker",
        url=url,
        endpoint_name=endpoint_name,
        topology=topology,
        region=region,
        emulated=urllib.parse.urlsplit(url).hostname in _LOCAL,
        **_describe(session, region, endpoint_name),
    )


def _describe(session: boto3.Session, region: str, endpoint_name: str) -> dict[str, Any]:
    """Variant, instances and image; what may not be looked up stays out, because calling needs no right to look."""
    sagemaker = session.client("sagemaker", region_name=region)
    found: dict[str, Any] = {}
    try:
        endpoint = sagemaker.describe_endpoint(EndpointName=endpoint_name)
        config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        variant = config["ProductionVariants"][0]
        running = endpoint.get("ProductionVariants", [])
        found["variant_name"] = variant["VariantName"]
        found["instance_type"] = variant.get("InstanceType")
        found["instance_count"] = running[0].get("CurrentInstanceCount") if running else None
        model: Any = sagemaker.describe_model(ModelName=variant["ModelName"]) if "ModelName" in variant else {}
        found["image"] = (model.get("Containers") or [model.get("PrimaryContainer", {})])[0].get("Image")
    except (ClientError, BotoCoreError):
        return found
    return found
