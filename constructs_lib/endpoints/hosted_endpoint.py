"""The parts that endpoints of every topology have in common: role, log group, configuration, the endpoint itself.

The module also defines the interface `Archives`, the archives that an endpoint serves.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from constructs_lib.endpoints.metrics import EndpointMetrics
from constructs_lib.iam import ExecutionRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from constructs import IDependable

    from cohost.hardware.images import ImageUri


class Archives(Protocol):
    """The archives that an endpoint serves, all below one address in S3."""

    @property
    def model_data_url(self) -> str:
        """Return the S3 address that SageMaker loads the archives from."""

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading the archives and listing their keys."""


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """The settings of an endpoint that are the same in every topology.

    Attributes:
        endpoint_name: the endpoint's name, which callers use.
        store: the archives to serve.
        image: the container image with DJL Serving.
        instance_type: the instance type, such as "ml.g5.xlarge".
        inference_ami_version: the host's image, which decides the GPU driver; with None, SageMaker chooses it.
        model_data_download_timeout_in_seconds: the time that fetching one archive may take, 60 to 3600.
        container_startup_health_check_timeout_in_seconds: the time until the container must answer pings, 60 to 3600;
            a component's container loads its models within that time.
        environment: the container's environment variables; no secrets, since describe-model shows them.
    """

    endpoint_name: str
    store: Archives
    image: ImageUri
    instance_type: str
    inference_ami_version: str | None
    model_data_download_timeout_in_seconds: int
    container_startup_health_check_timeout_in_seconds: int
    environment: Mapping[str, str]

    def component_startup(self) -> sagemaker.CfnInferenceComponent.InferenceComponentStartupParametersProperty:
        """Return the time-outs of download and health check as the startup parameters of an inference component."""
        return sagemaker.CfnInferenceComponent.InferenceComponentStartupParametersProperty(
            model_data_download_timeout_in_seconds=self.model_data_download_timeout_in_seconds,
            container_startup_health_check_timeout_in_seconds=self.container_startup_health_check_timeout_in_seconds,
        )


VARIANT_NAME: Final = "AllTraffic"
VARIANTS: Final = "sagemaker:variant:DesiredInstanceCount"
"""The scalable dimension of Application Auto Scaling for the number of a variant's instances."""


def add_log_group(scope: Construct, construct_id: str, name: str) -> logs.LogGroup:
    """Add the stack's own log group, because SageMaker's would keep its logs for ever and never be deleted."""
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )


def make_name_part_of_id(component: sagemaker.CfnInferenceComponent, name: str) -> None:
    """Derive the component's logical id from its name, so that another name makes another resource.

    CloudFormation never replaces a component, and SageMaker neither renames a component nor moves it to another
    endpoint. So if the logical id did not depend on the name, a change of the endpoint's name could not be deployed.
    """
    logical_id = cdk.Stack.of(component).get_logical_id(component)
    component.override_logical_id(f"{logical_id}{hashlib.sha256(name.encode()).hexdigest()[:8]}")


class HostedEndpoint(EndpointMetrics, Construct):
    """The base class of SageMaker endpoints; a subclass per topology adds the model and the variant.

    The endpoint has the name that `hosting` states. Model and EndpointConfig have generated names: a change replaces
    them, and a fixed name would still be taken by the old resource. Every resource has the same logical id in every
    topology, so another topology under the same endpoint name is an update of the endpoint. SageMaker rejects such an
    update, the stack rolls back, and the endpoint continues to serve unchanged. If logical ids differed by topology,
    the endpoint would be deleted and created again, without a warning.

    Args:
        hosting: the endpoint's name, archives, image, instance type and time-outs.
    """

    def __init__(self, scope: Construct, construct_id: str, *, hosting: Hosting) -> None:
        super().__init__(scope, construct_id)
        self.endpoint_name = hosting.endpoint_name
        self.variant_name = VARIANT_NAME
        self.log_group = add_log_group(self, "Logs", f"/aws/sagemaker/Endpoints/{self.endpoint_name}")
        self.execution_role = ExecutionRole(self, "ExecutionRole", image=hosting.image, log_group=self.log_group)
        hosting.store.grant_read(self.execution_role.role)
        self.scaled = False
        """True if the variant is a scalable target, because its number of instances follows the calls."""
        self.endpoint_config_name: str
        self._config: sagemaker.CfnEndpointConfig
        self._endpoint: sagemaker.CfnEndpoint

    @property
    def container_log_group(self) -> logs.ILogGroup:
        """Return the log group that the containers write to."""
        return self.log_group

    @property
    def endpoint_arn(self) -> str:
        """Return the ARN of the endpoint."""
        return self._endpoint.ref

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow the grantee to call the models of this endpoint."""
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=self._invoked_arns()
        )

    def capture_data(self, config: sagemaker.CfnEndpointConfig.DataCaptureConfigProperty) -> None:
        """Have SageMaker record calls and answers; the caller of this method gives the role the right to write them."""
        self._config.data_capture_config = config

    def encrypt_volumes(self, kms_key: str | None) -> None:
        """Encrypt the EBS volumes of the instances with a KMS key; with None, SageMaker chooses the key.

        The instances' local (instance store) disks are not encrypted with this key.
        """
        self._config.kms_key_id = kms_key

    def guard_updates(self, config: sagemaker.CfnEndpoint.DeploymentConfigProperty, alarm_names: Sequence[str]) -> None:
        """Apply a deployment configuration to later updates, and allow the execution role to read the alarms."""
        self._endpoint.deployment_config = config
        self.execution_role.allow_alarms(alarm_names)

    def _invoked_arns(self) -> list[str]:
        """Return the ARNs on which a caller needs the right sagemaker:InvokeEndpoint."""
        return [self.endpoint_arn]

    def _add_model(self, container: sagemaker.CfnModel.ContainerDefinitionProperty) -> sagemaker.CfnModel:
        model = sagemaker.CfnModel(
            self, "Model", execution_role_arn=self.execution_role.role_arn, primary_container=container
        )
        # The role's policy is a separate resource: without this, SageMaker may use the role before it has its rights.
        model.node.add_dependency(self.execution_role.policy)
        return model

    def _add_endpoint(
        self,
        variant: sagemaker.CfnEndpointConfig.ProductionVariantProperty,
        *,
        config_waits_for: tuple[IDependable, ...] = (),
        execution_role_arn: str | None = None,
        retain_all_variant_properties: bool | None = None,
    ) -> None:
        config = self._config = sagemaker.CfnEndpointConfig(
            self, "Config", production_variants=[variant], execution_role_arn=execution_role_arn
        )
        config.node.add_dependency(*config_waits_for)
        self.endpoint_config_name = config.attr_endpoint_config_name
        self._endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=self.endpoint_name,
            endpoint_config_name=config.attr_endpoint_config_name,
            retain_all_variant_properties=retain_all_variant_properties,
        )
        self._endpoint.node.add_dependency(self.execution_role.policy, self.log_group)
