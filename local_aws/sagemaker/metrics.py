"""Metrics of endpoints, gathered in memory and sent to the embedded CloudWatch once in a while.

Names, namespaces, dimensions and units: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch". Values of one
interval go out as one statistic set a metric, so a call costs a few additions and CloudWatch does not grow with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_cloudwatch.type_defs import MetricDatumTypeDef

    from local_aws.sagemaker.front import Front
    from local_aws.scaling.history import History

    Dimensions = tuple[tuple[str, str], ...]
    Key = tuple[str, str, Dimensions]

Unit = Literal["None", "Count", "Microseconds"]

INVOCATION_METRICS = "AWS/SageMaker"
INSTANCE_METRICS = "/aws/sagemaker/Endpoints"

_MICROSECONDS = 1_000_000
_METRICS_PER_PUT = 1000  # AWS API reference: PutMetricData

# What scaling acts on within a minute; alarms with periods under 60 s see high-resolution metrics only.
_HIGH_RESOLUTION = {"ConcurrentRequestsPerCopy", "ConcurrentRequestsPerModel", "NoCapacityInvocationFailures"}
_HIGH_RESOLUTION_S, _STANDARD_RESOLUTION_S = 1, 60


@dataclass(slots=True)
class _Statistics:
    unit: Unit
    count: int
    total: float
    least: float
    most: float

    def add(self, count: int, total: float, least: float, most: float) -> None:
        """Take in further values."""
        self.count += count
        self.total += total
        self.least = min(self.least, least)
        self.most = max(self.most, most)


class Metrics:
    """All metrics of the service; `publish` sends and forgets what was recorded since the last time.

    `history`, where there is one, gets each value when it is recorded: alarms go by it.
    """

    def __init__(self, front: Front, history: History | None) -> None:
        self._front = front
        self._history = history
        self._recorded: dict[Key, _Statistics] = {}

    def variant_meter(self, endpoint: str, variant: str) -> Meter:
        """The recorder of one variant of one endpoint."""
        return Meter(self, (("EndpointName", endpoint), ("VariantName", variant)))

    def component_meter(self, component: str) -> Meter:
        """The recorder of one inference component."""
        return Meter(self, (("InferenceComponentName", component),))

    def record(self, key: Key, unit: Unit, value: float) -> None:
        """Record a value; `key` is namespace, name and dimensions."""
        if self._history is not None:
            self._history.record(key, unit, value, fine=key[1] in _HIGH_RESOLUTION)
        if (found := self._recorded.get(key)) is None:
            self._recorded[key] = _Statistics(unit, 1, value, value, value)
            return
        found.add(1, value, value, value)

    async def publish(self) -> None:
        """Send what was recorded. What CloudWatch does not take is kept for the next time, and its error raised."""
        for namespace in {key[0] for key in self._recorded}:
            taken = {key: found for key, found in self._recorded.items() if key[0] == namespace}
            for key in taken:
                del self._recorded[key]
            try:
                await self._front.run(self._put, namespace, [_datum(key, found) for key, found in taken.items()])
            except BaseException:
                self._keep(taken)
                raise

    def _keep(self, unsent: Mapping[Key, _Statistics]) -> None:
        for key, found in unsent.items():
            if (since := self._recorded.get(key)) is not None:
                found.add(since.count, since.total, since.least, since.most)
            self._recorded[key] = found

    def _put(self, namespace: str, data: list[MetricDatumTypeDef]) -> None:
        for start in range(0, len(data), _METRICS_PER_PUT):
            batch = data[start : start + _METRICS_PER_PUT]
            self._front.cloudwatch().put_metric_data(Namespace=namespace, MetricData=batch)


class Meter:
    """Records metrics with certain dimensions."""

    def __init__(self, metrics: Metrics, dimensions: Dimensions) -> None:
        self._metrics = metrics
        self._dimensions = dimensions

    def count(self, name: str, value: float = 1, *, namespace: str = INVOCATION_METRICS) -> None:
        """Record a number of things."""
        unit: Unit = "Count" if namespace == INVOCATION_METRICS else "None"
        self._metrics.record((namespace, name, self._dimensions), unit, value)

    def duration(self, name: str, seconds: float) -> None:
        """Record a length of time; SageMaker's are in microseconds."""
        key = (INVOCATION_METRICS, name, self._dimensions)
        self._metrics.record(key, "Microseconds", seconds * _MICROSECONDS)


def _datum(key: Key, found: _Statistics) -> MetricDatumTypeDef:
    _, name, dimensions = key
    return {
        "MetricName": name,
        "Dimensions": [{"Name": dimension, "Value": value} for dimension, value in dimensions],
        "Unit": found.unit,
        "StorageResolution": _HIGH_RESOLUTION_S if name in _HIGH_RESOLUTION else _STANDARD_RESOLUTION_S,
        "StatisticValues": {
            "SampleCount": found.count,
            "Sum": found.total,
            "Minimum": found.least,
            "Maximum": found.most,
        },
    }
