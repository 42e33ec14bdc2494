"""The resource types that the CloudFormation engine knows; each type is a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.cloudformation.resources.compute import CdkMetadata, Function, Repository, VpcEndpoint
from local_aws.cloudformation.resources.monitoring import (
    Alarm,
    Budget,
    Dashboard,
    LogGroup,
    MetricFilter,
    Subscription,
    Topic,
    TopicPolicy,
)
from local_aws.cloudformation.resources.s3 import Bucket, BucketPolicy
from local_aws.cloudformation.resources.sagemaker import Endpoint, EndpointConfig, InferenceComponent, Model
from local_aws.cloudformation.resources.scaling import ScalableTarget, ScalingPolicy, Schedule, ScheduleGroup
from local_aws.cloudformation.resources.security import Alias, Key, ManagedPolicy, Parameter, Policy, Role

if TYPE_CHECKING:
    from local_aws.cloudformation.resources.base import ResourceType


class ResourceTypes:
    """Finds the class of a resource type.

    Args:
        types: the types by their exact names.
        custom: the class for `Custom::…` and `AWS::CloudFormation::CustomResource`.
    """

    def __init__(self, types: list[ResourceType], *, custom: ResourceType) -> None:
        self._types = {one.type: one for one in types}
        self._custom = custom

    def find(self, type_name: str) -> ResourceType | None:
        """Return the class for this type name; None when the emulation does not know it."""
        if type_name.startswith("Custom::") or type_name == "AWS::CloudFormation::CustomResource":
            return self._custom
        return self._types.get(type_name)

    def get(self, type_name: str) -> ResourceType:
        """Return the class for a type name that was checked before."""
        found = self.find(type_name)
        if found is None:
            raise KeyError(type_name)
        return found

    @property
    def names(self) -> list[str]:
        """The names of the known resource types, for error messages."""
        return [*sorted(self._types), "Custom::*"]


def aws_types() -> list[ResourceType]:
    """Return all resource types but the custom resource, which needs a URL for the answers of its functions."""
    return [
        Alarm(), Alias(), Bucket(), BucketPolicy(), Budget(), CdkMetadata(), Dashboard(), Endpoint(), EndpointConfig(),
        Function(), InferenceComponent(), Key(), LogGroup(), ManagedPolicy(), MetricFilter(), Model(), Parameter(),
        Policy(), Repository(), Role(), ScalableTarget(), ScalingPolicy(), Schedule(), ScheduleGroup(), Subscription(),
        Topic(), TopicPolicy(), VpcEndpoint(),
    ]  # fmt: skip
