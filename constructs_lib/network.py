"""The network that an endpoint's containers run in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

if TYPE_CHECKING:
    from cohost import catalog_network


class ContainerNetwork(Construct):
    """Puts the containers of an endpoint into a VPC, or cuts them off from any network, or both.

    Where route tables are given, an S3 gateway endpoint is made on them: it bills nothing, and is the way to the
    archives and to weights in S3 for subnets that lead nowhere else.

    Args:
        scope: the stack or construct it belongs to.
        construct_id: its id there.
        network: what the catalog says; all ids are taken as they are, since a synth looks nothing up.
    """

    def __init__(self, scope: Construct, construct_id: str, *, network: catalog_network.Network) -> None:
        super().__init__(scope, construct_id)
        self._network = network
        self._s3_endpoint = self._gateway() if network.route_tables else None

    def place(self, endpoint: Construct) -> None:
        """Put all containers of an endpoint into this network.

        A model's own settings decide for a variant that names it; for inference components, those of the endpoint's
        configuration do (SageMaker API reference: CreateEndpointConfig, VpcConfig).
        """
        for child in endpoint.node.find_all():
            if isinstance(child, sagemaker.CfnModel):
                child.enable_network_isolation = self._network.isolation or None
                child.vpc_config = self._model_vpc() if self._network.in_vpc else None
                if self._s3_endpoint is not None:
                    child.node.add_dependency(self._s3_endpoint)
            elif isinstance(child, sagemaker.CfnEndpointConfig) and _is_for_components(child):
                child.enable_network_isolation = self._network.isolation or None
                child.vpc_config = self._config_vpc() if self._network.in_vpc else None

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
    """Whether the variants name no model, because components will."""
    variants = config.production_variants
    return isinstance(variants, list) and not any(getattr(variant, "model_name", None) for variant in variants)
