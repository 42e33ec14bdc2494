"""Read SageMaker's own metrics for the minutes of a load test's run from CloudWatch.

Source of names, namespaces, dimensions and units: AWS guides "Amazon SageMaker AI metrics in Amazon CloudWatch" and
"CloudWatch metrics for multi-model endpoint deployments". None of the metrics distinguishes between models. The metrics
of an inference component's calls have the component's name as dimension; the metrics of its instances have endpoint and
variant as dimensions.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from cohost.report.run import Record

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import DimensionTypeDef

    from cohost.report.run import Run, Target

METRICS_FILE = "metrics.json"
PERIOD_S = 60
SETTLED_AFTER_S = 180
"""Seconds after a run from which its metrics are complete; metrics that were read sooner are read again next time.

CloudWatch has the values of a minute only some minutes later.
"""

_INVOCATION, _INSTANCE = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
_OF_ALL = (
    (_INVOCATION, "ModelLatency", "ms", 1e-3),
    (_INVOCATION, "OverheadLatency", "ms", 1e-3),
    (_INSTANCE, "GPUUtilization", "%", 1.0),
    (_INSTANCE, "GPUMemoryUtilization", "%", 1.0),
)
_OF_MULTI_MODEL_ENDPOINTS = (
    (_INVOCATION, "ModelLoadingWaitTime", "ms", 1e-3),
    (_INVOCATION, "ModelCacheHit", "share", 1.0),
    (_INVOCATION, "ModelUnloadingTime", "ms", 1e-3),
    (_INSTANCE, "LoadedModelCount", "models", 1.0),
)


class Point(Record):
    """One minute of a metric: its start (seconds since the epoch), and the mean, maximum and number of its values."""

    at: float
    average: float
    maximum: float
    count: float


class Metric(Record):
    """One metric of CloudWatch, with one point per minute, in `unit`."""

    name: str
    unit: str
    points: tuple[Point, ...]

    @property
    def average(self) -> float:
        """Return the mean over all values of all minutes, in `unit`."""
        total = sum(point.count for point in self.points)
        return sum(point.average * point.count for point in self.points) / total

    @property
    def maximum(self) -> float:
        """Return the largest value of all minutes, in `unit`."""
        return max(point.maximum for point in self.points)


class EndpointMetrics(Record):
    """The metrics that CloudWatch had for the minutes of a run."""

    read_at: float
    metrics: tuple[Metric, ...]

    def find(self, name: str) -> Metric | None:
        """Return the metric with this name; None if CloudWatch had no value of the metric."""
        return next((metric for metric in self.metrics if metric.name == name), None)


def metrics_of(run: Run, session: Any | None) -> EndpointMetrics | None:  # a boto3 session, or the fake of a test
    """Return the endpoint's metrics for a run, from the run's folder or else from CloudWatch; None if neither has any.

    If `session` is None, CloudWatch is not called. A missing permission or network raises no error; the report then has
    no metrics of the endpoint.
    """
    file = run.folder / METRICS_FILE
    stored = _stored(file)
    target = run.record.target
    if stored is not None and stored.read_at > run.record.ended + SETTLED_AFTER_S:
        return stored
    if session is None or target.endpoint_name is None or target.variant_name is None:
        return stored
    try:
        client = session.client("cloudwatch", region_name=target.region)
        found = _request(client, target, run)
    except (ClientError, BotoCoreError):
        return stored
    if not found.metrics:
        return stored
    file.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return found


def _stored(file: Path) -> EndpointMetrics | None:
    try:
        return EndpointMetrics.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _dimensions(namespace: str, target: Target) -> list[DimensionTypeDef]:
    if namespace == _INVOCATION and target.inference_component_name is not None:
        return [{"Name": "InferenceComponentName", "Value": target.inference_component_name}]
    return [
        {"Name": "EndpointName", "Value": target.endpoint_name or ""},
        {"Name": "VariantName", "Value": target.variant_name or ""},
    ]


def _request(client: CloudWatchClient, target: Target, run: Run) -> EndpointMetrics:
    start = datetime.fromtimestamp(run.record.started // PERIOD_S * PERIOD_S, UTC)
    end = datetime.fromtimestamp(run.record.ended, UTC) + timedelta(seconds=PERIOD_S)
    found = []
    own = _OF_MULTI_MODEL_ENDPOINTS if target.inference_component_name is None else ()
    for namespace, name, unit, factor in (*_OF_ALL, *own):
        answer = client.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=_dimensions(namespace, target),
            StartTime=start,
            EndTime=end,
            Period=PERIOD_S,
            Statistics=["Average", "Maximum", "SampleCount"],
        )
        if points := sorted((_point(data, factor) for data in answer["Datapoints"]), key=lambda point: point.at):
            found.append(Metric(name=name, unit=unit, points=tuple(points)))
    return EndpointMetrics(read_at=datetime.now(UTC).timestamp(), metrics=tuple(found))


def _point(data: Any, factor: float) -> Point:  # a datapoint as CloudWatch returns it
    return Point(
        at=data["Timestamp"].timestamp(),
        average=data["Average"] * factor,
        maximum=data["Maximum"] * factor,
        count=data["SampleCount"],
    )
