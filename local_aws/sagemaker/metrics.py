"""Metrics of endpoints, gathered in memory and sent to the embedded CloudWatch once in a while.

Names, namespaces, dimensions and units: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch". Values of one
interval go out as one statistic set a metric, so a call costs a few additions and CloudWatch does not grow with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.type_defs import MetricDatumTypeDef

    from local_aws.sagemaker.front import Front

Unit = Literal["None", "Count", "Microseconds"]

INVOCATION_METRICS = "AWS/SageMaker"
INSTANCE_METRICS = "/aws/sagemaker/Endpoints"

_MICROSECONDS = 1_000_000
_METRICS_PER_PUT = 1000  # AWS API reference: PutMetricData


@dataclass(slots=True)
class _Statistics:
    unit: Unit
    count: int
    total: float
    least: float
    most: float


class Metrics:
    """All metrics of the service; `publish` sends and forgets what was recorded since the last time."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._recorded: dict[tuple[str, str, str, str], _Statistics] = {}

    def meter(self, endpoint: str, variant: str) -> Meter:
        """The recorder of one variant of one endpoint."""
        return Meter(self, endpoint, variant)

    def record(self, key: tuple[str, str, str, str], unit: Unit, value: float) -> None:
        """Record a value; `key` is namespace, name, endpoint and variant."""
        if (found := self._recorded.get(key)) is None:
            self._recorded[key] = _Statistics(unit, 1, value, value, value)
            return
        found.count += 1
        found.total += value
        found.least = min(found.least, value)
        found.most = max(found.most, value)

    async def publish(self) -> None:
        """Send what was recorded."""
        recorded, self._recorded = self._recorded, {}
        for namespace in {key[0] for key in recorded}:
            data = [_datum(key, found) for key, found in recorded.items() if key[0] == namespace]
            await self._front.run(self._put, namespace, data)

    def _put(self, namespace: str, data: list[MetricDatumTypeDef]) -> None:
        for start in range(0, len(data), _METRICS_PER_PUT):
            batch = data[start : start + _METRICS_PER_PUT]
            self._front.cloudwatch().put_metric_data(Namespace=namespace, MetricData=batch)


class Meter:
    """Records the metrics of one variant."""

    def __init__(self, metrics: Metrics, endpoint: str, variant: str) -> None:
        self._metrics = metrics
        self._endpoint = endpoint
        self._variant = variant

    def count(self, name: str, value: float = 1, *, namespace: str = INVOCATION_METRICS) -> None:
        """Record a number of things."""
        unit: Unit = "Count" if namespace == INVOCATION_METRICS else "None"
        self._metrics.record((namespace, name, self._endpoint, self._variant), unit, value)

    def duration(self, name: str, seconds: float) -> None:
        """Record a length of time; SageMaker's are in microseconds."""
        key = (INVOCATION_METRICS, name, self._endpoint, self._variant)
        self._metrics.record(key, "Microseconds", seconds * _MICROSECONDS)


def _datum(key: tuple[str, str, str, str], found: _Statistics) -> MetricDatumTypeDef:
    _, name, endpoint, variant = key
    return {
        "MetricName": name,
        "Dimensions": [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}],
        "Unit": found.unit,
        "StatisticValues": {
            "SampleCount": found.count,
            "Sum": found.total,
            "Minimum": found.least,
            "Maximum": found.most,
        },
    }
