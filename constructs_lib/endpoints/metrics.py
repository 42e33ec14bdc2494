"""The metrics that SageMaker keeps of every kind of endpoint, as CloudWatch knows them.

AWS: "Amazon SageMaker AI metrics in Amazon CloudWatch". None of them is per model.
"""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

# What is called how often and how long it takes; how full the instances are.
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
        """A metric of this endpoint by its name."""
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=metric_name,
            statistic=statistic,
            period=cdk.Duration.minutes(1) if period is None else period,
            dimensions_map=self._dimensions(namespace),
        )

    def _dimensions(self, namespace: str) -> dict[str, str]:  # noqa: ARG002 - another topology asks by it
        """What the metrics of a namespace are kept by."""
        return {"EndpointName": self.endpoint_name, "VariantName": self.variant_name}

    def metric_invocations(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How many calls came in."""
        return self.metric("Invocations", statistic="Sum", period=period)

    def metric_invocations_per_instance(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How many calls came in for each instance."""
        return self.metric("InvocationsPerInstance", statistic="Sum", period=period)

    def metric_invocation_errors(
        self, *, server: bool, statistic: str = "Sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """How many calls failed by the server's fault (5xx) or the caller's (4xx); "Average" is their share, 0 to 1."""
        return self.metric(f"Invocation{'5XX' if server else '4XX'}Errors", statistic=statistic, period=period)

    def metric_invocation_model_errors(
        self, *, statistic: str = "Sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """How many calls the container did not answer with success; "Average" is their share, 0 to 1."""
        return self.metric("InvocationModelErrors", statistic=statistic, period=period)

    def metric_model_latency(self, *, statistic: str = "p99", period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How long the container took to answer, in microseconds."""
        return self.metric("ModelLatency", statistic=statistic, period=period)

    def metric_overhead_latency(
        self, *, statistic: str = "p99", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """What SageMaker adds to the container's time, in microseconds; loading a model on its first call is in it."""
        return self.metric("OverheadLatency", statistic=statistic, period=period)

    def metric_gpu_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How busy the GPUs are, in percent summed over them."""
        return self.metric("GPUUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_gpu_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How full the GPUs' memory is, in percent summed over them."""
        return self.metric("GPUMemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_cpu_utilization(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """How busy the cores are, in percent summed over them. It has values as long as there is an instance."""
        return self.metric("CPUUtilization", namespace=INSTANCE_NAMESPACE, statistic=statistic, period=period)

    def metric_memory_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How full the host's memory is, in percent."""
        return self.metric("MemoryUtilization", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_disk_utilization(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How full the disk is that archives and weights are put on, in percent."""
        return self.metric("DiskUtilization", namespace=INSTANCE_NAMESPACE, period=period)
