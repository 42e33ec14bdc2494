"""The CloudWatch dashboard of an endpoint: its load, its errors and latencies, and its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from cohost.report.formats import UNKNOWN
from constructs_lib.endpoints.multi_model import MultiModelEndpoint
from constructs_lib.endpoints.scale_to_zero import ScaleToZeroEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from constructs_lib.endpoints.metrics import EndpointMetrics
    from constructs_lib.monitoring.model_metrics import ModelMetrics


_WIDTH: Final = 24
_PERCENTILES: Final = ("p50", "p90", "p99")


class Dashboard(Construct):
    """A CloudWatch dashboard with the metrics of an endpoint, its alarms and its price.

    Args:
        endpoint: the endpoint whose metrics are shown.
        alarms: the alarms whose states are shown.
        usd_per_hour: the price of all instances in USD per hour, as text, or "unknown".
        price_source: the source of that price, as text.
        model_metrics: the metrics of each model; None shows none.
        models: the names of the models that these metrics are shown of.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint: EndpointMetrics,
        alarms: Sequence[cloudwatch.IAlarm],
        usd_per_hour: str,
        price_source: str,
        model_metrics: ModelMetrics | None = None,
        models: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        rows = [
            [_cost(endpoint.endpoint_name, usd_per_hour, price_source)],
            [_alarms(alarms)] if alarms else [],
            *_calls(endpoint),
            *_instances(endpoint),
            *(_models(endpoint) if isinstance(endpoint, MultiModelEndpoint) else []),
            *([] if model_metrics is None else _each_model(model_metrics, models)),
        ]
        self._dashboard = cloudwatch.Dashboard(self, "Dashboard", widgets=[row for row in rows if row])

    @property
    def url(self) -> str:
        """Return the address of the dashboard in the AWS console."""
        region = cdk.Stack.of(self).region
        return (
            f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
            f"#dashboards/dashboard/{self._dashboard.dashboard_name}"
        )


def _cost(endpoint_name: str, usd_per_hour: str, price_source: str) -> cloudwatch.IWidget:
    price = usd_per_hour if usd_per_hour == UNKNOWN else f"{usd_per_hour} USD"
    text = f"# {endpoint_name}\nCost per hour, called or not: **{price}** ({price_source})"
    return cloudwatch.TextWidget(markdown=text, width=_WIDTH, height=2)


def _alarms(alarms: Sequence[cloudwatch.IAlarm]) -> cloudwatch.IWidget:
    return cloudwatch.AlarmStatusWidget(alarms=list(alarms), title="Alarms", width=_WIDTH, height=2)


def _calls(endpoint: EndpointMetrics) -> list[list[cloudwatch.IWidget]]:
    errors = {
        "5xx": endpoint.metric_invocation_errors(server=True),
        "4xx": endpoint.metric_invocation_errors(server=False),
        "not a success of the container": endpoint.metric_invocation_model_errors(),
    }
    return [
        [
            _graph("Traffic, calls a minute", {"calls": endpoint.metric_invocations()}),
            _graph("Errors a minute", errors),
        ],
        [
            _graph("Model latency, ms", _percentiles(endpoint.metric_model_latency)),
            _graph("Overhead latency, ms", _percentiles(endpoint.metric_overhead_latency)),
        ],
    ]


def _instances(endpoint: EndpointMetrics) -> list[list[cloudwatch.IWidget]]:
    use = {"GPU": endpoint.metric_gpu_utilization(), "CPU": endpoint.metric_cpu_utilization()}
    room = {
        "GPU memory": endpoint.metric_gpu_memory_utilization(),
        "host memory": endpoint.metric_memory_utilization(),
        "disk": endpoint.metric_disk_utilization(),
    }
    # Every instance reports once a minute, so the number of reports in a minute is the number of instances.
    instances = {"instances": endpoint.metric_cpu_utilization(statistic="SampleCount")}
    return [
        [_graph("Use, percent summed over GPUs or cores", use), _graph("Memory and disk, percent", room)],
        [_graph("Scaling: instances", instances), _graph("Scaling: what it goes by", _load(endpoint))],
    ]


def _load(endpoint: EndpointMetrics) -> dict[str, cloudwatch.IMetric]:
    """Return the metrics that control scaling; they show if there are too few instances or copies."""
    if isinstance(endpoint, ScaleToZeroEndpoint):
        return {
            "calls in hand of a copy": endpoint.metric_concurrent_requests_per_copy(),
            "calls refused for want of a copy": endpoint.metric_no_capacity_invocation_failures(),
        }
    return {"calls a minute and instance": endpoint.metric_invocations_per_instance()}


def _models(endpoint: MultiModelEndpoint) -> list[list[cloudwatch.IWidget]]:
    loaded = {"models": endpoint.metric_loaded_model_count()}
    hits = {"share of calls": endpoint.metric_model_cache_hit()}
    times = {
        "waited for a model, longest": endpoint.metric_model_loading_wait_time(),
        "fetching an archive": endpoint.metric_model_downloading_time(),
        "loading a model": endpoint.metric_model_loading_time(),
    }
    return [
        [_graph("Loaded models", loaded), _graph("Calls whose model was loaded, 0 to 1", hits)],
        [_graph("Load times, ms", {name: _ms(metric, name) for name, metric in times.items()}, width=_WIDTH)],
    ]


def _each_model(metrics: ModelMetrics, models: Sequence[str]) -> list[list[cloudwatch.IWidget]]:
    def graph(title: str, name: str, statistic: str) -> cloudwatch.IWidget:
        return _graph(title, {model: metrics.metric(name, model, statistic=statistic) for model in models})

    return [
        [graph("Requests of each model", "Requests", "Sum"), graph("Errors of each model", "Errors", "Sum")],
        [
            graph("Latency p99 of each model, ms", "LatencyP99", "Maximum"),
            graph("Queue p99 of each model, ms", "QueueP99", "Maximum"),
        ],
        [graph("Tokens of each model", "Tokens", "Sum")],
    ]


def _graph(title: str, metrics: Mapping[str, cloudwatch.IMetric], *, width: int = _WIDTH // 2) -> cloudwatch.IWidget:
    labelled = [
        metric.with_(label=label) if isinstance(metric, cloudwatch.Metric) else metric
        for label, metric in metrics.items()
    ]
    axis = cloudwatch.YAxisProps(min=0, show_units=False)
    return cloudwatch.GraphWidget(title=title, left=labelled, left_y_axis=axis, width=width, height=6)


def _percentiles(metric: Callable[..., cloudwatch.Metric]) -> dict[str, cloudwatch.IMetric]:
    return {name: _ms(metric(statistic=name), name) for name in _PERCENTILES}


def _ms(metric: cloudwatch.Metric, label: str) -> cloudwatch.IMetric:
    """Return a metric that CloudWatch has in microseconds, converted to milliseconds."""
    # The ids of a widget's metrics have to differ.
    name = "us_" + "".join(letter for letter in label.lower() if letter.isalnum())
    return cloudwatch.MathExpression(
        expression=f"{name} / 1000", using_metrics={name: metric}, label=label, period=cdk.Duration.minutes(1)
    )
