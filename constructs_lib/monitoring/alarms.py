"""The alarms of an endpoint, one per threshold of the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from constructs_lib.endpoints.multi_model import MultiModelEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from constructs import Construct

    from cohost.catalog.sections.monitoring import Alarms
    from constructs_lib.endpoints.metrics import EndpointMetrics


_HOUR: Final = cdk.Duration.hours(1)
_FIVE_MINUTES: Final = cdk.Duration.minutes(5)
_MICROSECONDS_PER_MS: Final = 1_000
_MICROSECONDS_PER_S: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class _Watch:
    """The definition of one alarm.

    `key` is the alarm's key in the catalog. The alarm goes off if `datapoints` of the last `of` periods cross the
    threshold.
    """

    key: str
    construct_id: str
    metric: cloudwatch.IMetric
    threshold: float
    of: int
    datapoints: int
    text: str
    below: bool = False


def make_alarms(
    scope: Construct, endpoint: EndpointMetrics, alarms: Alarms, *, gpus: int
) -> dict[str, cloudwatch.Alarm]:
    """Create the alarms that the catalog states, and return them by the catalog's keys.

    A period without data never sets off an alarm: an endpoint without calls has no error rate, and an endpoint without
    instances cannot be idle.
    """
    watches = [*_calls(endpoint, alarms), *_instances(endpoint, alarms, gpus), *_idle(endpoint, alarms)]
    if isinstance(endpoint, MultiModelEndpoint):
        watches += _loading(endpoint, alarms)
    return {watch.key: _alarm(scope, watch, endpoint.endpoint_name) for watch in watches}


def _alarm(scope: Construct, watch: _Watch, endpoint_name: str) -> cloudwatch.Alarm:
    comparison = cloudwatch.ComparisonOperator
    return cloudwatch.Alarm(
        scope,
        watch.construct_id,
        alarm_description=f"Endpoint {endpoint_name}: {watch.text} (monitoring.alarms.{watch.key})",
        metric=watch.metric,
        threshold=watch.threshold,
        comparison_operator=comparison.LESS_THAN_THRESHOLD if watch.below else comparison.GREATER_THAN_THRESHOLD,
        evaluation_periods=watch.of,
        datapoints_to_alarm=watch.datapoints,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )


def _calls(endpoint: EndpointMetrics, alarms: Alarms) -> Iterator[_Watch]:
    # The error metrics are 1 for a call that failed and 0 for a call that did not, so their average is the error rate.
    if alarms.client_errors_percent:
        # A model with DJL's own handler whose process has ended answers 400 for ever while pings stay 200, so that
        # SageMaker notices nothing.
        yield _Watch(
            key="client_errors_percent",
            construct_id="ClientErrors",
            metric=endpoint.metric_invocation_errors(server=False, statistic="Average", period=_FIVE_MINUTES),
            threshold=alarms.client_errors_percent / 100,
            of=3,
            datapoints=3,
            text=f"more than {alarms.client_errors_percent:g} % of the calls end with 4xx, three times five minutes on "
            "end: callers send what the models refuse, or a model's process has ended (`cohost status --probe`)",
        )
    if alarms.server_errors_percent:
        yield _Watch(
            key="server_errors_percent",
            construct_id="ServerErrors",
            metric=endpoint.metric_invocation_errors(server=True, statistic="Average"),
            threshold=alarms.server_errors_percent / 100,
            of=3,
            datapoints=2,
            text=f"more than {alarms.server_errors_percent:g} % of the calls end with 5xx",
        )
    if alarms.model_errors_percent:
        yield _Watch(
            key="model_errors_percent",
            construct_id="ModelErrors",
            metric=endpoint.metric_invocation_model_errors(statistic="Average"),
            threshold=alarms.model_errors_percent / 100,
            of=3,
            datapoints=2,
            text=f"the container refuses or fails more than {alarms.model_errors_percent:g} % of the calls",
        )
    if alarms.model_latency_p99_ms:
        yield _Watch(
            key="model_latency_p99_ms",
            construct_id="ModelLatency",
            metric=endpoint.metric_model_latency(statistic="p99"),
            threshold=alarms.model_latency_p99_ms * _MICROSECONDS_PER_MS,
            of=5,
            datapoints=3,
            text=f"one call of a hundred takes the container more than {alarms.model_latency_p99_ms:g} ms",
        )


def _instances(endpoint: EndpointMetrics, alarms: Alarms, gpus: int) -> Iterator[_Watch]:
    if alarms.gpu_memory_percent and gpus:
        yield _Watch(
            key="gpu_memory_percent",
            construct_id="GpuMemory",
            metric=endpoint.metric_gpu_memory_utilization(period=_FIVE_MINUTES),
            threshold=alarms.gpu_memory_percent * gpus,
            of=2,
            datapoints=2,
            text=f"more than {alarms.gpu_memory_percent:g} % of the GPU memory is in use",
        )
    if alarms.disk_percent:
        yield _Watch(
            key="disk_percent",
            construct_id="Disk",
            metric=endpoint.metric_disk_utilization(period=_FIVE_MINUTES),
            threshold=alarms.disk_percent,
            of=2,
            datapoints=2,
            text=f"more than {alarms.disk_percent:g} % of the disk is full of archives and weights",
        )


def _loading(endpoint: MultiModelEndpoint, alarms: Alarms) -> Iterator[_Watch]:
    if alarms.model_loading_wait_seconds:
        yield _Watch(
            key="model_loading_wait_seconds",
            construct_id="ModelLoadingWait",
            metric=endpoint.metric_model_loading_wait_time(period=_FIVE_MINUTES),
            threshold=alarms.model_loading_wait_seconds * _MICROSECONDS_PER_S,
            of=1,
            datapoints=1,
            text=f"a call waited more than {alarms.model_loading_wait_seconds:g} s for its model",
        )


def _idle(endpoint: EndpointMetrics, alarms: Alarms) -> Iterator[_Watch]:
    """Yield the alarm for hours in which an instance reported metrics but no call came in.

    An endpoint without calls has no metric of calls at all, so the alarm's sum gets its zeros from a metric that the
    instances report. So a new endpoint is not idle before it has existed for `idle_hours`, and an endpoint that is
    deleted or scaled to zero is never idle.
    """
    if alarms.idle_hours:
        calls = cloudwatch.MathExpression(
            expression="SUM([calls, 0 * alive])",
            using_metrics={
                "calls": endpoint.metric_invocations(period=_HOUR),
                "alive": endpoint.metric_cpu_utilization(statistic="SampleCount", period=_HOUR),
            },
            label="Invocations while there is an instance",
            period=_HOUR,
        )
        yield _Watch(
            key="idle_hours",
            construct_id="Idle",
            metric=calls,
            threshold=1,
            of=alarms.idle_hours,
            datapoints=alarms.idle_hours,
            text=f"nobody called it for {alarms.idle_hours} h, and it bills; remove it with `cdk destroy`, or let it "
            "end by itself with `expires` in the catalog",
            below=True,
        )
