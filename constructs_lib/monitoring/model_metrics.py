"""CloudWatch metrics of each model, which metric filters read from the lines that the project's handlers log.

SageMaker has no metrics per model. A line in a container's log is not JSON, since DJL Serving puts its own prefix in
front of what a process prints (DJL Serving 0.36.0, PyProcess). From a line that is not JSON, CloudWatch reads neither
the embedded metric format nor JSON patterns. A pattern of space-delimited fields that begins with an ellipsis works
(AWS: "Filter pattern syntax for metric filters").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "LmiCohost"
DIMENSION: Final = "Model"
MARK: Final = "cohost-metrics"
"""The word that starts the fields of a line with a model's figures."""

FIELDS: Final = (
    *("model", "requests", "errors", "tokens"),
    *("latency_ms", "latency_p99_ms", "queue_ms", "queue_p99_ms"),
)
"""The fields that follow MARK up to the end of the line, separated by one blank each."""

METRICS: Final[Mapping[str, tuple[str, cloudwatch.Unit]]] = {
    "Requests": ("requests", cloudwatch.Unit.COUNT),
    "Errors": ("errors", cloudwatch.Unit.COUNT),
    "Tokens": ("tokens", cloudwatch.Unit.COUNT),
    "Latency": ("latency_ms", cloudwatch.Unit.MILLISECONDS),
    "LatencyP99": ("latency_p99_ms", cloudwatch.Unit.MILLISECONDS),
    "Queue": ("queue_ms", cloudwatch.Unit.MILLISECONDS),
    "QueueP99": ("queue_p99_ms", cloudwatch.Unit.MILLISECONDS),
}
"""The field and the unit of each metric."""


class ModelMetrics(Construct):
    """One metric filter per figure that the handlers log for each model; the dimension is the catalog's model name.

    Args:
        endpoint_name: the name of the endpoint, part of the metrics' namespace.
        log_group: the log group of the containers.
    """

    def __init__(self, scope: Construct, construct_id: str, *, endpoint_name: str, log_group: logs.ILogGroup) -> None:
        super().__init__(scope, construct_id)
        self.namespace = f"{NAMESPACE}/{endpoint_name}"
        pattern = logs.FilterPattern.space_delimited("...", "mark", *FIELDS).where_string("mark", "=", MARK)
        for name, (field, unit) in METRICS.items():
            logs.MetricFilter(
                self,
                name,
                log_group=log_group,
                filter_pattern=pattern,
                metric_namespace=self.namespace,
                metric_name=name,
                metric_value=f"${field}",
                unit=unit,
                dimensions={DIMENSION: "$model"},
            )

    def metric(self, name: str, model: str, *, statistic: str, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return one of METRICS of a model, by the model's name in the catalog."""
        return cloudwatch.Metric(
            namespace=self.namespace,
            metric_name=name,
            statistic=statistic,
            period=cdk.Duration.minutes(1) if period is None else period,
            dimensions_map={DIMENSION: model},
        )
