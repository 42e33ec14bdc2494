"""A SageMaker endpoint that serves every archive below one S3 prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from constructs_lib.endpoint_metrics import INSTANCE_NAMESPACE, EndpointMetrics
from constructs_lib.execution_role import ExecutionRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.images import ImageUri
    from constructs_lib.model_store import ModelStore

VARIANT_NAME: Final = "AllTraffic"


class MultiModelEndpoint(EndpointMetrics, Construct):
    """An endpoint in multi-model mode: SageMaker loads an archive when it is first called by its key.

    The endpoint has the given name; Model and EndpointConfig have none, because both are replaced on a change and a
    fixed name would stand in the way of its successor.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        endpoint_name: the name that callers use.
        store: the archives to serve.
        image: the server image.
        instance_type: "ml.g5.xlarge" and the like.
        initial_instance_count: instances behind the endpoint, 1 or more.
        inference_ami_version: the host image, by which the GPU driver is chosen. None leaves it to SageMaker.
        model_data_download_timeout_in_seconds: how long fetching one archive may take, 60 to 3600.
        container_startup_health_check_timeout_in_seconds: how long the container may take to answer, 60 to 3600.
        model_cache_setting: "Enabled" keeps loaded models in memory, "Disabled" suits many that are called once.
        environment: variables of the container; no secrets, since describe-model shows them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint_name: str,
        store: ModelStore,
        image: ImageUri,
        instance_type: str,
        initial_instance_count: int,
        inference_ami_version: str | None,
        model_data_download_timeout_in_seconds: int,
        container_startup_health_check_timeout_in_seconds: int,
        model_cache_setting: str,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id)
        self.endpoint_name = endpoint_name
        self.variant_name = VARIANT_NAME
        self.log_group = logs.LogGroup(
            self,
            "Logs",
            log_group_name=f"/aws/sagemaker/Endpoints/{endpoint_name}",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.execution_role = ExecutionRole(self, "ExecutionRole", image=image, log_group=self.log_group)
        store.grant_read(self.execution_role.role)
        container = sagemaker.CfnModel.ContainerDefinitionProperty(
            image=str(image),
            mode="MultiModel",
            model_data_url=store.model_data_url,
            multi_model_config=sagemaker.CfnModel.MultiModelConfigProperty(model_cache_setting=model_cache_setting),
            environment=dict(environment) if environment else None,
        )
        model = sagemaker.CfnModel(
            self, "Model", execution_role_arn=self.execution_role.role_arn, primary_container=container
        )
        # The policy is a resource of its own; without this, SageMaker may use the role before it has its rights.
        model.node.add_dependency(self.execution_role.policy)
        variant = sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=VARIANT_NAME,
            model_name=model.attr_model_name,
            instance_type=instance_type,
            initial_instance_count=initial_instance_count,
            initial_variant_weight=1,
            inference_ami_version=inference_ami_version,
            model_data_download_timeout_in_seconds=model_data_download_timeout_in_seconds,
            container_startup_health_check_timeout_in_seconds=container_startup_health_check_timeout_in_seconds,
        )
        config = sagemaker.CfnEndpointConfig(self, "Config", production_variants=[variant])
        self._endpoint = sagemaker.CfnEndpoint(
            self, "Endpoint", endpoint_name=endpoint_name, endpoint_config_name=config.attr_endpoint_config_name
        )
        self._endpoint.node.add_dependency(self.execution_role.policy)
        # SageMaker would create the group itself, without retention, and leave it behind.
        self._endpoint.node.add_dependency(self.log_group)

    @property
    def endpoint_arn(self) -> str:
        """The ARN of the endpoint."""
        return self._endpoint.ref

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow calling the models of this endpoint."""
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn]
        )

    def metric_model_loading_wait_time(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How long calls waited for their model to be fetched and loaded, in microseconds."""
        return self.metric("ModelLoadingWaitTime", statistic="Maximum", period=period)

    def metric_model_cache_hit(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """The share of calls whose model was loaded already, 0 to 1."""
        return self.metric("ModelCacheHit", period=period)

    def metric_loaded_model_count(self, *, period: cdk.Duration | None = None) -> cloudwatch.Metric:
        """How many models the containers hold."""
        return self.metric("LoadedModelCount", namespace=INSTANCE_NAMESPACE, period=period)

    def metric_model_loading_time(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """How long the container took to load a model that it had been given, in microseconds."""
        return self.metric("ModelLoadingTime", statistic=statistic, period=period)

    def metric_model_downloading_time(
        self, *, statistic: str = "Average", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """How long fetching an archive from S3 took, in microseconds."""
        return self.metric("ModelDownloadingTime", statistic=statistic, period=period)
