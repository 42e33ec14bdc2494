"""A SageMaker endpoint that serves every archive below one S3 prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker

from constructs_lib.endpoints.autoscaling import Autoscaling
from constructs_lib.endpoints.hosted_endpoint import VARIANT_NAME, VARIANTS, HostedEndpoint
from constructs_lib.endpoints.metrics import INSTANCE_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aws_cdk as cdk
    from constructs import Construct

    from cohost.catalog.sections.scaling import Metric, Scaling
    from constructs_lib.endpoints.hosted_endpoint import Hosting


# AWS API reference: PredefinedMetricSpecification of Application Auto Scaling.
TRACKED: Final[Mapping[Metric, str]] = {
    "invocations": "SageMakerVariantInvocationsPerInstance",
    "concurrency": "SageMakerVariantConcurrentRequestsPerModelHighResolution",
}


class MultiModelEndpoint(HostedEndpoint):
    """An endpoint in multi-model mode: SageMaker loads an archive at the first call that names its key.

    Args:
        hosting: the endpoint's name, archives, image, instance type and time-outs.
        initial_instance_count: the number of instances behind the endpoint, 1 or more.
        model_cache_setting: "Enabled" keeps loaded models in memory; "Disabled" suits many models with few calls each.
        scaling: the bounds and the target of the number of instances. None keeps it at `initial_instance_count`. With
            scaling, an update of the endpoint keeps the current number of instances.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        hosting: Hosting,
        initial_instance_count: int,
        model_cache_setting: str,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__(scope, construct_id, hosting=hosting)
        container = sagemaker.CfnModel.ContainerDefinitionProperty(
            image=str(hosting.image),
            mode="MultiModel",
            model_data_url=hosting.store.model_data_url,
            multi_model_config=sagemaker.CfnModel.MultiModelConfigProperty(model_cache_setting=model_cache_setting),
            environment=dict(hosting.environment) or None,
        )
        timeout = hosting.container_startup_health_check_timeout_in_seconds
        variant = sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=VARIANT_NAME,
            model_name=self._add_model(container).attr_model_name,
            instance_type=hosting.instance_type,
            initial_instance_count=initial_instance_count,
            initial_variant_weight=1,
            inference_ami_version=hosting.inference_ami_version,
            model_data_download_timeout_in_seconds=hosting.model_data_download_timeout_in_seconds,
            container_startup_health_check_timeout_in_seconds=timeout,
        )
        self._add_endpoint(variant, retain_all_variant_properties=None if scaling is None else True)
        self.scaled = scaling is not None
        if scaling is not None:
            Autoscaling(
                self,
                "Scaling",
                resource_id=f"endpoint/{self.endpoint_name}/variant/{VARIANT_NAME}",
                scalable_dimension=VARIANTS,
                predefined_metric_type=TRACKED[scaling.metric],
                scaling=scaling,
                scaled=self._endpoint,
            )

    def metric_model_loading_wait_time(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the time that calls wait for their model to be fetched and loaded, in microseconds."""
        return self.metric("ModelLoadingWaitTime", statistic="Maximum", period=period)

    def metric_model_cache_hit(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the share of calls whose model was loaded already, 0 to 1."""
        return self.metric("ModelCacheHit", period=period)

    def metric_loaded_model_count(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """Return the metric of the number of models that the containers have loaded."""
        return self.metric("LoadedModelCount", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_model_loading_time(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of the container's time to load a model that was already fetched, in microseconds."""
        return self.metric("ModelLoadingTime", statistic=statistic, period=period)

    def metric_model_downloading_time(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """Return the metric of the time to fetch an archive from S3, in microseconds."""
        return self.metric("ModelDownloadingTime", statistic=statistic, period=period)
