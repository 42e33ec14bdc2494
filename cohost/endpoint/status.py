"""Read the state of a deployment: its endpoint, its published archives, and its number of loaded models."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cohost.archives.store import ModelStore
from cohost.endpoint.copies import Bounds, Component
from cohost.endpoint.load_failures import LoadFailure, LogWatch, log_groups
from cohost.endpoint.stack_outputs import describe_endpoint
from cohost.routing import ARCHIVE_SUFFIX, CPU_ONNX

if TYPE_CHECKING:
    from collections.abc import Mapping

    import boto3

    from cohost.endpoint.stack_outputs import Deployment


METRIC_PERIOD_S = 60
METRIC_WINDOW = timedelta(minutes=15)
LOG_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class ComponentStatus:
    """The inference component of a scale-to-zero endpoint: its copies, and auto scaling's minimum and maximum of them.

    `bounds` is None if the component has no scalable target.
    """

    name: str
    status: str
    desired_copies: int
    current_copies: int
    failure_reason: str | None
    bounds: Bounds | None


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of one deployment.

    `archives` maps the name of each archive in the deployed set to the archive's content digest; a set has one archive
    per model, or a single archive of all models if an inference component serves them. `not_in_outputs` are models that
    were pushed after the deploy, so that the stack's outputs lack them. `loaded_models` is the number of loaded models
    over all instances, reported by SageMaker at most 15 minutes ago. `loaded_models` is None if SageMaker reported no
    number, and on a scale-to-zero endpoint. SageMaker does not report the names of loaded models. `component` is None
    on a multi-model endpoint. `load_failures` are the models that containers failed to load in the last hour, according
    to the containers' logs.
    """

    stack_name: str
    topology: str
    endpoint_name: str
    endpoint_status: str
    failure_reason: str | None
    instance_type: str | None
    instance_count: int | None
    generation: str
    model_data_url: str
    archives: Mapping[str, str]
    not_in_outputs: tuple[str, ...]
    loaded_models: int | None
    component: ComponentStatus | None
    load_failures: tuple[LoadFailure, ...] = ()


def read_status(deployment: Deployment, session: boto3.Session) -> Status:
    """Read the state of a deployment from SageMaker, S3 and CloudWatch.

    Raises:
        StackError: the endpoint of the stack does not exist, or a service refuses a request.
    """
    region = deployment.region
    endpoint, config = describe_endpoint(session.client("sagemaker", region_name=region), deployment)
    archives = _archives(deployment, session)
    variants = endpoint.get("ProductionVariants", [])
    component = _component(deployment, session)
    return Status(
        stack_name=deployment.stack_name,
        topology=deployment.topology,
        endpoint_name=deployment.endpoint_name,
        endpoint_status=endpoint["EndpointStatus"],
        failure_reason=endpoint.get("FailureReason"),
        instance_type=config["ProductionVariants"][0].get("InstanceType"),
        instance_count=variants[0].get("CurrentInstanceCount") if variants else None,
        generation=deployment.generation,
        model_data_url=deployment.model_data_url,
        archives=archives,
        not_in_outputs=() if component else tuple(sorted(set(archives) - set(deployment.models))),
        loaded_models=None
        if component
        else _loaded_models(session, deployment, config["ProductionVariants"][0]["VariantName"]),
        component=component,
        load_failures=_load_failures(deployment, session),
    )


def _load_failures(deployment: Deployment, session: boto3.Session) -> tuple[LoadFailure, ...]:
    """Return the models that containers failed to load in the last hour, according to the containers' log groups.

    Return () if the caller may not read the log groups.
    """
    since = datetime.now(UTC) - LOG_WINDOW
    logs = session.client("logs", region_name=deployment.region)
    watch = LogWatch(logs, deployment.models, int(since.timestamp() * 1000))
    watch.look(log_groups(deployment.endpoint_name, deployment.inference_component_name))
    return watch.reader.failures


def _archives(deployment: Deployment, session: boto3.Session) -> dict[str, str]:
    """Return the content digest of each archive, by the archive's name.

    In the CPU design (topology cpu-onnx) an archive's name is its digest, so the digest is read from the stack's
    outputs.
    """
    if deployment.topology == CPU_ONNX:
        return {name: target.removesuffix(ARCHIVE_SUFFIX) for name, target in deployment.models.items()}
    s3 = session.client("s3", region_name=deployment.region)
    return ModelStore(s3, deployment.bucket, deployment.prefix).models(deployment.generation)


def _component(deployment: Deployment, session: boto3.Session) -> ComponentStatus | None:
    if deployment.inference_component_name is None:
        return None
    component = Component(deployment, deployment.inference_component_name, session)
    copies = component.copies()
    return ComponentStatus(
        name=component.name,
        status=copies.status,
        desired_copies=copies.desired,
        current_copies=copies.current,
        failure_reason=copies.failure_reason,
        bounds=component.bounds(),
    )


def _loaded_models(session: boto3.Session, deployment: Deployment, variant: str) -> int | None:
    """Return the latest LoadedModelCount of the last 15 minutes; None if CloudWatch has none.

    Source: AWS guide, CloudWatch metrics for multi-model endpoint deployments.
    """
    now = datetime.now(UTC)
    answer = session.client("cloudwatch", region_name=deployment.region).get_metric_statistics(
        Namespace="/aws/sagemaker/Endpoints",
        MetricName="LoadedModelCount",
        Dimensions=[
            {"Name": "EndpointName", "Value": deployment.endpoint_name},
            {"Name": "VariantName", "Value": variant},
        ],
        StartTime=now - METRIC_WINDOW,
        EndTime=now + timedelta(seconds=METRIC_PERIOD_S),
        Period=METRIC_PERIOD_S,
        Statistics=["Maximum"],
    )
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    return int(points[-1]["Maximum"]) if points else None
