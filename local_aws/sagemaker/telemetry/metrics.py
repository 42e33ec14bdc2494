"""Metrics of endpoints: invocations, concurrency and the use of instances, sent to the emulated CloudWatch.

Names, namespaces, dimensions and units are from AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch". The values of
one interval are sent as one statistic set per metric, so recording a call costs a few additions, and uses no memory in
CloudWatch. ConcurrentRequestsPerModel and ConcurrentRequestsPerCopy have a value every ten seconds, including zeros,
since scale-in needs them. Each instance sends one value of its utilization per minute, so the number of values is the
number of instances. GPUs are not read: containers run on the CPU.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mypy_boto3_cloudwatch.type_defs import MetricDatumTypeDef

    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock

    Dimensions = tuple[tuple[str, str], ...]
    Key = tuple[str, str, Dimensions]

Unit = Literal["None", "Count", "Microseconds"]

INVOCATION_METRICS = "AWS/SageMaker"
INSTANCE_METRICS = "/aws/sagemaker/Endpoints"

_MICROSECONDS = 1_000_000
_METRICS_PER_PUT = 1000  # AWS API reference: PutMetricData

# The metrics that scaling acts on within a minute; alarms with periods under 60 s see high-resolution metrics only.
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
        """Add further values: their number, sum, minimum and maximum."""
        self.count += count
        self.total += total
        self.least = min(self.least, least)
        self.most = max(self.most, most)


class RecordMetric(Protocol):
    """A function that gets each metric value at the moment when the value is recorded."""

    def __call__(self, key: Key, unit: str, value: float, *, fine: bool) -> None:
        """Take a metric value; `key` is namespace, name and dimensions, `fine` is True for high resolution (1 s)."""


class Metrics:
    """All metrics of SageMaker; `publish` sends and forgets the values that were recorded since its last call.

    `record_metric`, if it is not None, gets each value when the value is recorded, for alarms.
    """

    def __init__(self, clients: ServiceClients, record_metric: RecordMetric | None) -> None:
        self._clients = clients
        self._record_metric = record_metric
        self._recorded: dict[Key, _Statistics] = {}

    def variant_meter(self, endpoint: str, variant: str) -> Meter:
        """Return the meter that records the metrics of one variant of one endpoint."""
        return Meter(self, (("EndpointName", endpoint), ("VariantName", variant)))

    def component_meter(self, component: str) -> Meter:
        """Return the meter that records the metrics of one inference component."""
        return Meter(self, (("InferenceComponentName", component),))

    def record(self, key: Key, unit: Unit, value: float) -> None:
        """Record a metric value; `key` is namespace, name and dimensions."""
        if self._record_metric is not None:
            self._record_metric(key, unit, value, fine=key[1] in _HIGH_RESOLUTION)
        if (found := self._recorded.get(key)) is None:
            self._recorded[key] = _Statistics(unit, 1, value, value, value)
            return
        found.add(1, value, value, value)

    async def publish(self) -> None:
        """Send the recorded values. If CloudWatch rejects a namespace, raise the error and keep its values."""
        for namespace in {key[0] for key in self._recorded}:
            taken = {key: found for key, found in self._recorded.items() if key[0] == namespace}
            for key in taken:
                del self._recorded[key]
            try:
                await self._clients.run(self._put, namespace, [_datum(key, found) for key, found in taken.items()])
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
            self._clients.cloudwatch().put_metric_data(Namespace=namespace, MetricData=batch)


class Meter:
    """Record the metrics of one variant or inference component, with its dimensions."""

    def __init__(self, metrics: Metrics, dimensions: Dimensions) -> None:
        self._metrics = metrics
        self._dimensions = dimensions

    def count(self, name: str, value: float = 1, *, namespace: str = INVOCATION_METRICS) -> None:
        """Record a value of the metric `name`, by default a count of 1."""
        unit: Unit = "Count" if namespace == INVOCATION_METRICS else "None"
        self._metrics.record((namespace, name, self._dimensions), unit, value)

    def duration(self, name: str, seconds: float) -> None:
        """Record a duration, converted from seconds to microseconds, the unit of SageMaker's metrics."""
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


class ConcurrencyGauge:
    """Count running calls; `report` records the highest count since the last report, divided by the capacity."""

    def __init__(self, meter: Meter, metric: str, interval_s: float, clock: Clock) -> None:
        self._meter = meter
        self._metric = metric
        self._interval_s = interval_s
        self._clock = clock
        self._running = 0
        self._peak = 0
        self._next_report = 0.0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as running until the end of the with block."""
        self._running += 1
        self._peak = max(self._peak, self._running)
        try:
            yield
        finally:
            self._running -= 1

    def report(self, capacity: int) -> None:
        """Record a value if the interval is over and `capacity`, the number of instances or copies, is not 0."""
        now = self._clock.now()
        if capacity == 0 or now < self._next_report:
            return
        self._meter.count(self._metric, self._peak / capacity)
        self._peak, self._next_report = self._running, now + self._interval_s


EVERY_SECONDS: Final = 60.0
_FRESH_SECONDS: Final = 1.0


class MachineUtilization:
    """Measure the utilization of this machine, which the instances of all endpoints share.

    psutil returns the CPU use since the same thread's last call, so the second of two calls in a row returns 0. A
    `read` within a second of the last CPU measurement therefore returns that measurement.

    Args:
        folder: a folder on the disk that instances put archives and weights on.
        now: returns the seconds of a clock that never goes back.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now = now
        self.prime()

    def prime(self) -> None:
        """Begin to measure the CPU; call this before the first `read`, in the same thread."""
        self._primed_at = self._now()
        self._cpu_percent = sum(psutil.cpu_percent(percpu=True))

    def read(self) -> Mapping[str, float]:
        """Return the utilization in percent by metric; CPUUtilization is the sum over the cores, as in SageMaker."""
        if self._now() >= self._primed_at + _FRESH_SECONDS:
            self.prime()
        return {
            "CPUUtilization": self._cpu_percent,
            "MemoryUtilization": psutil.virtual_memory().percent,
            "DiskUtilization": psutil.disk_usage(str(self._folder)).percent,
        }


class InstanceUtilization:
    """Record the utilization of a variant's instances once per minute of the emulator's clock (kit/clock.py).

    Args:
        meter: records the metrics of the variant.
        clock: determines the end of a minute.
        machine: the machine that the instances are emulated on.
    """

    def __init__(self, meter: Meter, clock: Clock, machine: MachineUtilization) -> None:
        self._meter = meter
        self._clock = clock
        self._machine = machine
        self._next = 0.0

    def report(self, instances: int) -> None:
        """Record a value of each metric for each instance, if a minute has passed since the last values."""
        now = self._clock.now()
        if now < self._next or not instances:
            return
        self._next = now + EVERY_SECONDS
        for name, value in self._machine.read().items():
            for _ in range(instances):
                self._meter.count(name, value, namespace=INSTANCE_METRICS)
