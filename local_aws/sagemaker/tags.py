"""The tag operations of the control plane (AWS API reference: AddTags, ListTags, DeleteTags)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_aws.sagemaker.faults import ValidationException
from local_aws.sagemaker.registry import Collection, Resource, tags_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_TAGS = 50


class Tags:
    """Adds, lists and deletes tags of models, endpoint configurations and endpoints."""

    def __init__(self, collections: Sequence[Collection[Any]]) -> None:
        self._collections = collections

    async def add(self, request: dict[str, Any]) -> dict[str, Any]:
        """AddTags."""
        resource = self._resource(request["ResourceArn"])
        tags = {**resource.tags, **tags_of(request)}
        if len(tags) > _MOST_TAGS:
            raise ValidationException(
                f"{resource.arn} would have {len(tags)} tags; a resource has {_MOST_TAGS} at most"
            )
        resource.tags = tags
        return {"Tags": _listed(tags)}

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListTags. All tags stand in one answer: a resource has no more than fit."""
        return {"Tags": _listed(self._resource(request["ResourceArn"]).tags)}

    async def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteTags."""
        resource = self._resource(request["ResourceArn"])
        resource.tags = {key: value for key, value in resource.tags.items() if key not in request["TagKeys"]}
        return {}

    def _resource(self, arn: str) -> Resource:
        for collection in self._collections:
            resource: Resource | None = collection.by_arn(arn.lower())
            if resource is not None:
                return resource
        raise ValidationException(f"Could not find resource {arn}.")


def _listed(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
