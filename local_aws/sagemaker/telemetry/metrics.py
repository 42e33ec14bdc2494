"""Metrics of endpoints: invocations, concurrency and the use of instances, sent to the embedded CloudWatch.

Names, namespaces, dimensions and units: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch". Values of one
interval go out as one statistic set a metric, so a call costs a few additions and CloudWatch does not grow with it.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch", ConcurrentRequestsPerModel and ConcurrentRequestsPerCopy; a
value every ten seconds, and zeros too, since scaling in waits for them.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch", instance metrics. CloudWatch gets one value a minute from each
instance, so the number of values says how many instances there are. GPUs are not looked at: containers run on the CPU.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mypy_boto3_cloudwatch.type_defs import MetricDatumTypeDef

    from local_aws.cloudwatch.metric_store import MetricStore
    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock

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

    def __init__(self, clients: ServiceClients, history: MetricStore | None) -> None:
        self._clients = clients
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


class ConcurrencyGauge:
    """Counts calls; `report` records the most that ran at once since the last report, divided by the capacity."""

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
        """Count a call for as long as it runs."""
        self._running += 1
        self._peak = max(self._peak, self._running)
        try:
            yield
        finally:
            self._running -= 1

    def report(self, capacity: int) -> None:
        """Record a value if it is time; `capacity` is how many instances or copies there are, none give no value."""
        now = self._clock.now()
        if capacity == 0 or now < self._next_report:
            return
        self._meter.count(self._metric, self._peak / capacity)
        self._peak, self._next_report = self._running, now + self._interval_s


EVERY_SECONDS: Final = 60.0
_FRESH_SECONDS: Final = 1.0


class Processor:
    """How busy the machine's cores are, for all who ask.

    psutil tells of the time since the same thread asked it before, so that one who asks right behind another is told
    nothing. Whoever asks here within a second of a reading is given that one.

    Args:
        now: seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.prime()

    def prime(self) -> None:
        """Begin to measure; in another thread than that of the constructor, before it asks for the first time."""
        self._read = self._now()
        self._percent = sum(psutil.cpu_percent(percpu=True))

    def percent(self) -> float:
        """The use in percent of a core, summed over the cores, as SageMaker has it."""
        if self._now() >= self._read + _FRESH_SECONDS:
            self.prime()
        return self._percent


class MachineUse:
    """Records the use of a variant's instances once in a minute of the clock.

    Args:
        meter: of the variant.
        clock: says when a minute is over.
        folder: on the disk that instances put archives and weights on.
        processor: the machine's.
    """

    def __init__(self, meter: Meter, clock: Clock, folder: Path, processor: Processor) -> None:
        self._meter = meter
        self._clock = clock
        self._folder = folder
        self._processor = processor
        self._next = 0.0

    def report(self, instances: int) -> None:
        """Record a value of each metric for each instance, if it is time."""
        now = self._clock.now()
        if now < self._next or not instances:
            return
        self._next = now + EVERY_SECONDS
        use = {
            "CPUUtilization": self._processor.percent(),
            "MemoryUtilization": psutil.virtual_memory().percent,
            "DiskUtilization": psutil.disk_usage(str(self._folder)).percent,
        }
        for name, value in use.items():
            for _ in range(instances):
                self._meter.count(name, value, namespace=INSTANCE_METRICS)
