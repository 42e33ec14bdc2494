"""The VPC settings and the network isolation of an endpoint's containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from constructs_lib.acknowledgements import acknowledge

if TYPE_CHECKING:
    from cohost.catalog.models import Network
    from constructs_lib.endpoints.hosted_endpoint import HostedEndpoint

# SageMaker creates the network interfaces with the container's role (SageMaker guide: execution roles, CreateModel,
# private VPC); aws-cdk-lib 2.275.0 grants the same nine actions in its SageMakerCreateModel.
_ON_INTERFACES = ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface")
_WITHOUT_RESOURCE = (
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)


class ContainerNetwork(Construct):
    """The network of an endpoint's containers: in a VPC, or cut off from any network, or both.

    If the catalog names route tables, an S3 gateway endpoint is created for them. An S3 gateway endpoint costs nothing,
    and lets subnets without internet reach the archives and weights in S3.

    Args:
        network: the catalog's section `network`; its ids are used unchecked, since a synth looks nothing up.
    """

    def __init__(self, scope: Construct, construct_id: str, *, network: Network) -> None:
        super().__init__(scope, construct_id)
        self._network = network
        self._s3_endpoint = self._gateway() if network.route_tables else None

    def place(self, endpoint: HostedEndpoint) -> None:
        """Put all containers of an endpoint into this network.

        SageMaker takes the network settings from the model if the variant names one, and from the endpoint's
        configuration if the endpoint has inference components (SageMaker API reference: CreateEndpointConfig,
        VpcConfig).
        """
        if self._network.in_vpc:
            self._grant_interfaces(endpoint.execution_role.role)
        for child in endpoint.node.find_all():
            if isinstance(child, sagemaker.CfnModel):
                child.enable_network_isolation = self._network.isolation or None
                child.vpc_config = self._model_vpc() if self._network.in_vpc else None
                if self._s3_endpoint is not None:
                    child.node.add_dependency(self._s3_endpoint)
            elif isinstance(child, sagemaker.CfnEndpointConfig) and _is_for_components(child):
                child.enable_network_isolation = self._network.isolation or None
                child.vpc_config = self._config_vpc() if self._network.in_vpc else None

    def _grant_interfaces(self, role: iam.Role) -> None:
        """Allow the role to create network interfaces in the catalog's subnets and security groups only."""
        interfaces = self._arn("network-interface", "*")
        subnets = [self._arn("subnet", one) for one in self._network.subnets]
        groups = [self._arn("security-group", one) for one in self._network.security_groups]
        here = {"ArnEquals": {"ec2:Subnet": subnets}}
        for statement in (
            iam.PolicyStatement(
                actions=["ec2:CreateNetworkInterface"],
                resources=[*subnets, *groups],
            ),
            iam.PolicyStatement(actions=[*_ON_INTERFACES], resources=[interfaces], conditions=here),
            iam.PolicyStatement(actions=[*_WITHOUT_RESOURCE], resources=["*"]),
        ):
            role.add_to_policy(statement)
        account = cdk.Stack.of(self).account
        shown = interfaces.replace(account, "<AWS::AccountId>") if cdk.Token.is_unresolved(account) else interfaces
        acknowledge(
            role,
            "AwsSolutions-IAM5",
            finding=f"Resource::{shown}",
            reason="EC2 makes up an interface's id; a condition leaves those in the catalog's subnets.",
        )

    def _arn(self, resource: str, name: str) -> str:
        return cdk.Stack.of(self).format_arn(service="ec2", resource=resource, resource_name=name)

    def _model_vpc(self) -> sagemaker.CfnModel.VpcConfigProperty:
        return sagemaker.CfnModel.VpcConfigProperty(
            subnets=self._network.subnets, security_group_ids=self._network.security_groups
        )

    def _config_vpc(self) -> sagemaker.CfnEndpointConfig.VpcConfigProperty:
        return sagemaker.CfnEndpointConfig.VpcConfigProperty(
            subnets=self._network.subnets, security_group_ids=self._network.security_groups
        )

    def _gateway(self) -> ec2.CfnVPCEndpoint:
        return ec2.CfnVPCEndpoint(
            self,
            "S3",
            vpc_id=str(self._network.vpc),
            service_name=f"com.amazonaws.{cdk.Stack.of(self).region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=self._network.route_tables,
        )


def _is_for_components(config: sagemaker.CfnEndpointConfig) -> bool:
    """Return True if the variants name no model, because inference components name the models."""
    variants = config.production_variants
    return isinstance(variants, list) and not any(getattr(variant, "model_name", None) for variant in variants)
