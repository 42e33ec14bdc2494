"""The metrics that SageMaker keeps of every kind of endpoint, as CloudWatch names them.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch". None of them is per model.
"""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

# Calls and their duration; use of the instances.
INVOCATION_NAMESPACE: Final = "AWS/SageMaker"
INSTANCE_NAMESPACE: Final = "/aws/sagemaker/Endpoints"


class EndpointMetrics:
    """The metrics of one production variant; a mixin of the endpoints' constructs.

    Every method gives values of one minute unless `period` says otherwise.
    """

    endpoint_name: str
    variant_name: str

    def metric(
        self,
        metric_name: str,
        *,
        namespace: str = INVOCATION_NAMESPACE,
        statistic: str = "Average",
        period: cdk.Duration | None = None,
    ) -> cloudwatch.Metric:
        """Return a metric of this endpoint by its name."""
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=metric_name,
            statistic=statistic,
            period=cdk.Duration.minutes(1) if period is None else period,
            dimensions_map=self._dimensions(namespace),
        )

    def _dimensions(self, namespace: str) -> dict[str, str]:  # noqa: ARG002 - another topology needs it
        """Return the dimensions of a namespace's metrics."""
        return {"EndpointName": self.endpoint_name, "VariantName": self.variant_name}

    def metric_invocations(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of calls."""
        return self.metric("Invocations", statistic="Sum", period=period)

    def metric_invocations_per_instance(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of calls per instance."""
        return self.metric("InvocationsPerInstance", statistic="Sum", period=period)

    def metric_invocation_errors(
        self, *, server: bool, statistic: str = "Sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of calls that failed, with 5xx or with 4xx; "Average" is their share, 0 to 1."""
        return self.metric(f"Invocation{'5XX' if server else '4XX'}Errors", statistic=statistic, period=period)

    def metric_invocation_model_errors(
        self, *, statistic: str = "Sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of calls that the container answered with an error; "Average" is their share, 0 to 1."""
        return self.metric("InvocationModelErrors", statistic=statistic, period=period)

    def metric_model_latency(self, *, statistic: str = "p99", period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the container's time to answer, in microseconds."""
        return self.metric("ModelLatency", statistic=statistic, period=period)

    def metric_overhead_latency(
        self, *, statistic: str = "p99", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of SageMaker's own time, in microseconds; it includes loading a model on its first call."""
        return self.metric("OverheadLatency", statistic=statistic, period=period)

    def metric_gpu_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the GPUs' use, in percent summed over them."""
        return self.metric("GPUUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_gpu_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the GPUs' used memory, in percent summed over them."""
        return self.metric("GPUMemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_cpu_utilization(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of the cores' use, in percent summed over them. Without an instance it has no values."""
        return self.metric("CPUUtilization", namespace=INSTANCE_NAMESPACE, statistic=statistic, period=period)

    def metric_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the host's used memory, in percent."""
        return self.metric("MemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_disk_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the used disk space, where archives and weights are stored, in percent."""
        return self.metric("DiskUtilization", namespace=INSTANCE_NAMESPACE, period=period)
