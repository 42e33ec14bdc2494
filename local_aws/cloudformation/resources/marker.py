"""AWS::CDK::Metadata: the CDK's note about itself, which stands for nothing."""

from __future__ import annotations

from typing import ClassVar

from local_aws.cloudformation.names import physical_name
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType


class CdkMetadata(ResourceType):
    """Exists in the stack only."""

    type: ClassVar[str] = "AWS::CDK::Metadata"
    known: ClassVar[frozenset[str]] = frozenset({"Analytics"})

    def create(self, request: Request) -> Outcome:
        """Give it an id."""
        return Outcome(physical_id=physical_name(request.stack_name, request.logical_id, limit=128))

    def update(self, request: Request) -> Outcome:
        """Keep the id."""
        return Outcome(physical_id=request.physical_id)

    def delete(self, request: Request) -> None:
        """Nothing is there."""
