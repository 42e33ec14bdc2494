"""The target of a run's calls: a stack's endpoint, an endpoint given by its name, or a container given by its URL."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from cohost.archives.archive import server_name
from cohost.callers import TOKEN_HEADER, TOKEN_VARIABLE
from cohost.catalog.serving import settings_of
from cohost.catalog_file import load_catalog
from cohost.deploy.local_aws import is_local
from cohost.endpoint.client import CohostClient
from cohost.report.run import Model, Target
from cohost.routing import ARCHIVE_SUFFIX, Route, target_model
from load_tests import LoadError
from load_tests.options import TASKS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping, Sequence

    from botocore.credentials import Credentials
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import DescribeEndpointOutputTypeDef

    from cohost.catalog.models import Catalog

    _Known = tuple[tuple[Model, ...], tuple[str | None, ...]]

LIST_TIMEOUT_S = 5


@dataclass(frozen=True)
class Destination:
    """The destination of one model's calls: the path after the target's URL, and the header fields."""

    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A run's target; `models`, `destinations` and `revisions` have one entry per model, in the same order.

    `credentials` None means that calls are not signed.
    """

    target: Target
    models: tuple[Model, ...]
    destinations: tuple[Destination, ...]
    revisions: tuple[str | None, ...]
    credentials: Credentials | None

    @property
    def container(self) -> bool:
        """Return True if calls go to a container directly, without SageMaker."""
        return self.target.kind == "container"


def resolve(options: argparse.Namespace) -> Resolved:
    """Find and return the target and the models that the options and environment variables name.

    Raises:
        CohostError: the target or a model does not exist, or a model's task is not known.
    """
    wanted, path = _wanted(options), Path(options.catalog)
    catalog = load_catalog(path).catalog if path.is_file() else None
    if options.host:
        return _container(options, wanted, catalog)
    if options.endpoint:
        return _endpoint(options, wanted, catalog)
    return _stack(options, wanted, catalog)


def _wanted(options: argparse.Namespace) -> dict[str, float]:
    """Return the weights of the models that the options name; empty if all models are to be called."""
    if options.target_model:
        return {options.target_model.removesuffix(ARCHIVE_SUFFIX): 1.0}
    return {name.removesuffix(ARCHIVE_SUFFIX): weight for name, weight in (options.models or {}).items()}


def _models(options: argparse.Namespace, weights: Mapping[str, float], catalog: Catalog | None) -> _Known:
    entries = {} if catalog is None else catalog.models
    models, revisions = [], []
    for name, weight in weights.items():
        entry = entries.get(name)
        task = options.task or (entry.task if entry else None)
        if task is None:
            raise LoadError(
                "task-unknown",
                f"model {name}",
                f"has no known task: {options.catalog} lacks the model",
                allowed=", ".join(TASKS),
                fix="name the task with --task, or the deployed catalog with --catalog",
            )
        known: dict[str, Any] = {}
        if catalog and entry:
            settings = settings_of(entry, catalog.endpoint)
            known = {"model_id": entry.model_id, "handler": entry.handler, "settings": settings}
        models.append(Model(name=name, task=task, weight=weight, **known))
        revisions.append(entry.revision if entry else None)
    return tuple(models), tuple(revisions)


def _stack(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    session = boto3.Session()
    client = CohostClient.from_stack(options.stack, session=session)
    deployment = client.deployment
    known = _models(options, wanted or dict.fromkeys(deployment.models, 1.0), catalog)
    routes = [client.route(model.name) for model in known[0]]
    for route in routes:
        given = options.target_model and target_model(route.model)
        route.check_given(target_model=given, inference_component_name=options.inference_component)
    return _through_sagemaker(session, deployment.region, deployment.topology, routes, known)


def _endpoint(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    session = boto3.Session()
    weights = wanted or dict.fromkeys(catalog.models if catalog else (), 1.0)
    if not weights:
        raise LoadError(
            "models-unnamed",
            "--endpoint",
            f"no model of {options.endpoint!r} is named, and there is no catalog at {options.catalog}",
            fix="name its models with --models, or their catalog with --catalog",
        )
    known = _models(options, weights, catalog)
    if session.region_name is None:
        raise LoadError("region-unset", "--endpoint", "no AWS region is set", fix="export AWS_DEFAULT_REGION=us-east-1")
    component = options.inference_component
    routes = [Route(endpoint_name=options.endpoint, model=m.name, inference_component_name=component) for m in known[0]]
    return _through_sagemaker(session, session.region_name, None, routes, known)


def _through_sagemaker(
    session: boto3.Session, region: str, topology: str | None, routes: Sequence[Route], known: _Known
) -> Resolved:
    url = session.client("sagemaker-runtime", region_name=region).meta.endpoint_url
    target = Target(
        kind="sagemaker",
        url=url,
        endpoint_name=routes[0].endpoint_name,
        inference_component_name=routes[0].inference_component_name,
        topology=topology,
        region=region,
        emulated=is_local(url),
        **_describe(session, region, routes[0]),
    )
    credentials = session.get_credentials()
    if credentials is None:
        raise LoadError(
            "credentials-unset",
            "AWS credentials",
            "none found",
            allowed="any that boto3 finds",
            fix="export AWS_PROFILE=NAME",
        )
    return Resolved(
        target=target,
        models=known[0],
        destinations=tuple(map(_sagemaker_destination, routes)),
        revisions=known[1],
        credentials=credentials,
    )


def _container(options: argparse.Namespace, wanted: Mapping[str, float], catalog: Catalog | None) -> Resolved:
    url = urllib.parse.urlsplit(options.host)
    if url.scheme not in {"http", "https"} or not url.hostname or url.path.strip("/"):
        raise LoadError(
            "host-invalid",
            "--host",
            f"got {options.host!r}",
            allowed="a container's URL without a path",
            fix="name it like http://127.0.0.1:8080",
        )
    base = f"{url.scheme}://{url.netloc}"
    # The embedded container of this project requires this header; other servers ignore it.
    token = os.environ.get(TOKEN_VARIABLE)
    headers = {TOKEN_HEADER: token} if token else {}
    served = _served_names(base, headers, wanted, catalog)
    models, revisions = _models(options, wanted or dict.fromkeys(served, 1.0), catalog)
    paths = [f"/invocations?model_name={urllib.parse.quote(served[model.name], safe='')}" for model in models]
    return Resolved(
        target=Target(kind="container", url=base, emulated=False),
        models=models,
        destinations=tuple(Destination(path, headers) for path in paths),
        revisions=revisions,
        credentials=None,
    )


def _served_names(
    base: str, headers: Mapping[str, str], wanted: Collection[str], catalog: Catalog | None
) -> dict[str, str]:
    """Return the name that a container uses for each model to call; keys are the models' names in the catalog.

    Both names of a model differ if the container was started with a folder per model, as on a scale-to-zero endpoint.
    """
    if wanted and all(server_name(name) == name for name in wanted):
        return {name: name for name in wanted}
    listed = _list_models(base, headers)
    if not wanted:
        named = {server_name(name): name for name in (catalog.models if catalog else ())}
        return {name if catalog and name in catalog.models else named.get(name, name): name for name in listed}
    return {name: server_name(name) if name not in listed and server_name(name) in listed else name for name in wanted}


def _list_models(base: str, headers: Mapping[str, str]) -> list[str]:
    """Return the names of the models that a container holds, from DJL Serving's management API."""
    request = urllib.request.Request(f"{base}/models?limit=1000", headers=dict(headers))  # noqa: S310 - http only
    try:
        with urllib.request.urlopen(request, timeout=LIST_TIMEOUT_S) as answer:  # noqa: S310 - http only
            names = [str(model["modelName"]) for model in json.load(answer)["models"]]
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError) as error:
        raise LoadError(
            "host-unreachable",
            "--host",
            f"the models of {base} cannot be listed ({error})",
            fix="start it, or name models with --models",
        ) from error
    if not names:
        raise LoadError("host-without-models", "--host", f"{base} has no model", fix="load one with POST /models")
    return names


def _sagemaker_destination(route: Route) -> Destination:
    """Return the path and header fields of InvokeEndpoint for a route, derived from botocore's service model."""
    arguments = route.arguments()
    operation = get_session().get_service_model("sagemaker-runtime").operation_model("InvokeEndpoint")
    members: Mapping[str, Any] = getattr(operation.input_shape, "members", {})
    headers = {members[key].serialization["name"]: value for key, value in arguments.items() if key != "EndpointName"}
    name = urllib.parse.quote(arguments["EndpointName"], safe="")
    return Destination(operation.http["requestUri"].replace("{EndpointName}", name), headers)


def _describe(session: boto3.Session, region: str, route: Route) -> dict[str, Any]:
    """Return the variant, instances and image that serve a route, as values for the fields of `Target`.

    Fields that the caller has no permission to read are left out, since calls do not need that permission.

    Raises:
        LoadError: the options name an inference component that the endpoint does not have, or lack one that it needs.
    """
    sagemaker = session.client("sagemaker", region_name=region)
    found: dict[str, Any] = {}
    try:
        endpoint = sagemaker.describe_endpoint(EndpointName=route.endpoint_name)
        config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        variant = config["ProductionVariants"][0]
        found |= {"variant_name": variant["VariantName"], "instance_type": variant.get("InstanceType")}
        found["partitions"] = partitions_of(variant)
        found["instance_count"] = _instance_count(endpoint)
        model_name = _model_name(sagemaker, route, variant)
        model: Any = sagemaker.describe_model(ModelName=model_name) if model_name else {}
        found["image"] = (model.get("Containers") or [model.get("PrimaryContainer", {})])[0].get("Image")
    except (ClientError, BotoCoreError):
        return found
    return found


def partitions_of(variant: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the GPU partitions of a variant; SageMaker accepts one layout, which applies to all GPUs."""
    layouts = variant.get("AcceleratorPartitionLayouts") or [{}]
    return tuple(layouts[0].get("AcceleratorPartitionTypes", ()))


def instances_of(sagemaker: SageMakerClient, endpoint_name: str) -> int | None:
    """Return the current number of an endpoint's instances; None if the caller may not read the number."""
    try:
        return _instance_count(sagemaker.describe_endpoint(EndpointName=endpoint_name))
    except (ClientError, BotoCoreError):
        return None


def _instance_count(endpoint: DescribeEndpointOutputTypeDef) -> int | None:
    running = endpoint.get("ProductionVariants", [])
    return running[0].get("CurrentInstanceCount") if running else None


# `variant` is a part of SageMaker's answer
def _model_name(sagemaker: SageMakerClient, route: Route, variant: Any) -> str | None:
    """Return the name of the SageMaker model that serves a route: that of the variant or of the inference component.

    Raises:
        LoadError: the route has an inference component and the endpoint has none, or the reverse.
    """
    component = route.inference_component_name
    if component is not None and "ModelName" in variant:
        raise LoadError(
            "component-unfit",
            "--inference-component",
            f"got {component!r}, and endpoint {route.endpoint_name!r} has no inference components",
            fix="leave it out: the models are addressed by their archives",
        )
    if component is None and "ModelName" not in variant:
        listed = sagemaker.list_inference_components(EndpointNameEquals=route.endpoint_name)["InferenceComponents"]
        names = ", ".join(found["InferenceComponentName"] for found in listed)
        raise LoadError(
            "component-unnamed",
            "--inference-component",
            f"none is named, and endpoint {route.endpoint_name!r} has inference components",
            allowed=names or "none yet",
            fix="name one, and its models with --models",
        )
    if component is None:
        return str(variant["ModelName"])
    described = sagemaker.describe_inference_component(InferenceComponentName=component)
    return described.get("Specification", {}).get("ModelName")
