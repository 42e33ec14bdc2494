"""The CloudWatch metrics that SageMaker has for every kind of endpoint.

Source: AWS, "Amazon SageMaker AI metrics in Amazon CloudWatch". None of these metrics is reported per model.
"""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

# The first namespace has the metrics of calls, the second those of the instances.
INVOCATION_NAMESPACE: Final = "AWS/SageMaker"
INSTANCE_NAMESPACE: Final = "/aws/sagemaker/Endpoints"


class EndpointMetrics:
    """The metrics of an endpoint's production variant; a mixin of the endpoints' constructs.

    The period of every metric is one minute, unless `period` is given.
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
        """Return this endpoint's metric with the given name in the given namespace."""
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=metric_name,
            statistic=statistic,
            period=cdk.Duration.minutes(1) if period is None else period,
            dimensions_map=self._dimensions(namespace),
        )

    def _dimensions(self, namespace: str) -> dict[str, str]:  # noqa: ARG002 - another topology needs it
        """Return the dimensions of this endpoint's metrics in a namespace."""
        return {"EndpointName": self.endpoint_name, "VariantName": self.variant_name}

    def metric_invocations(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the number of calls."""
        return self.metric("Invocations", statistic="Sum", period=period)

    def metric_invocations_per_instance(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the number of calls per instance."""
        return self.metric("InvocationsPerInstance", statistic="Sum", period=period)

    def metric_invocation_errors(
        self, *, server: bool, statistic: str = "Sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of calls that failed, with 5xx if `server`, else 4xx; "Average" is their share, 0 to 1."""
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
        """Return the metric of SageMaker's own time per call, in microseconds; first calls include the model's load."""
        return self.metric("OverheadLatency", statistic=statistic, period=period)

    def metric_gpu_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the GPUs' utilization, in percent, summed over an instance's GPUs."""
        return self.metric("GPUUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_gpu_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the GPUs' used memory, in percent, summed over an instance's GPUs."""
        return self.metric("GPUMemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_cpu_utilization(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of CPU utilization, in percent, summed over all cores; no values without instances."""
        return self.metric("CPUUtilization", namespace=INSTANCE_NAMESPACE, statistic=statistic, period=period)

    def metric_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the host's used memory, in percent."""
        return self.metric("MemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_disk_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the used space, in percent, of the disk that holds archives and weights."""
        return self.metric("DiskUtilization", namespace=INSTANCE_NAMESPACE, period=period)
