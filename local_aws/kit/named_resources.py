"""The named resources of an account, which are found by name or ARN, filtered, sorted, paged and tagged.

Two names that differ only in letter case cannot both exist, and ARNs are in lower case, but a resource keeps its name's
case (AWS API reference: CreateEndpoint, EndpointName).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@dataclass(kw_only=True)
class Resource:
    """A named resource of the account; `definition` is the request that created the resource, without name and tags."""

    name: str
    arn: str
    definition: dict[str, Any]
    tags: dict[str, str]
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def modified(self) -> datetime:
        """The time of the resource's last change; for a resource that cannot change, the time of its creation."""
        return self.created

    def summary(self, noun: str) -> dict[str, Any]:
        """Return the members that every answer about the resource has, such as EndpointArn for `noun` Endpoint."""
        return {f"{noun}Name": self.name, f"{noun}Arn": self.arn, "CreationTime": self.created}


R = TypeVar("R", bound=Resource)


class Collection(Generic[R]):
    """All resources of one kind; `noun` names the kind in error texts, `arn_part` names the kind in ARNs."""

    def __init__(self, noun: str, arn_prefix: str, arn_part: str) -> None:
        self._noun = noun
        self._arn_start = f"{arn_prefix}:{arn_part}/"
        self._by_arn: dict[str, R] = {}

    def __iter__(self) -> Iterator[R]:
        """Iterate over a snapshot of the resources, so that resources may be added and removed during the loop."""
        return iter(list(self._by_arn.values()))

    def arn(self, name: str) -> str:
        """Return the ARN that a resource of this name has or would have."""
        return self._arn_start + name.lower()

    def check_free(self, name: str) -> None:
        """Raise ValidationException if a resource of this name exists."""
        if self.arn(name) in self._by_arn:
            raise ValidationException(f'Cannot create already existing {self._noun} "{self.arn(name)}".')

    def add(self, resource: R) -> None:
        """Add a resource; raise ValidationException if a resource of this name exists."""
        self.check_free(resource.name)
        self._by_arn[resource.arn] = resource

    def get(self, name: str) -> R:
        """Return the resource of this name in any letter case; raises ValidationException if there is none."""
        if (resource := self._by_arn.get(self.arn(name))) is None:
            raise ValidationException(f'Could not find {self._noun} "{self.arn(name)}".')
        return resource

    def find(self, name: str) -> R | None:
        """Return the resource of exactly this name, in the same letter case; None if there is none."""
        resource = self._by_arn.get(self._arn_start + name.lower())
        return resource if resource is not None and resource.name == name else None

    def by_arn(self, arn: str) -> R | None:
        """Return the resource of this ARN; None if there is none."""
        return self._by_arn.get(arn)

    def remove(self, name: str) -> None:
        """Remove the resource of this name; raises ValidationException if there is none."""
        del self._by_arn[self.get(name).arn]


def tags_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the tags in a request as a mapping from key to value.

    Raises:
        ValidationException: the request has the same tag key twice.
    """
    tags = request.get("Tags") or []
    keys = [tag["Key"] for tag in tags]
    for key in keys:
        if keys.count(key) > 1:
            raise ValidationException(f"Duplicate tag key {key}: tag keys must be unique per resource")
    return {tag["Key"]: tag["Value"] for tag in tags}


_DEFAULT_PAGE = 10

_FILTERS: dict[str, Callable[[Resource, Any], bool]] = {
    "NameContains": lambda resource, text: text.lower() in resource.name.lower(),
    "CreationTimeAfter": lambda resource, seconds: resource.created.timestamp() > float(seconds),
    "CreationTimeBefore": lambda resource, seconds: resource.created.timestamp() < float(seconds),
    "LastModifiedTimeAfter": lambda resource, seconds: resource.modified.timestamp() > float(seconds),
    "LastModifiedTimeBefore": lambda resource, seconds: resource.modified.timestamp() < float(seconds),
    "StatusEquals": lambda resource, status: getattr(resource, "status", None) == status,
    "EndpointNameEquals": lambda resource, name: getattr(resource, "endpoint_name", None) == name,
    "VariantNameEquals": lambda resource, name: getattr(resource, "variant_name", None) == name,
}


def page(resources: Iterable[R], request: dict[str, Any]) -> tuple[list[R], dict[str, str]]:
    """Return the page of resources that a List request asks for, with `{"NextToken": …}` if more pages follow.

    The request's filters, SortBy, SortOrder, MaxResults and NextToken determine the page.

    Raises:
        ValidationException: the NextToken is not one of an earlier answer.
    """
    tests = [(test, request[name]) for name, test in _FILTERS.items() if request.get(name) is not None]
    kept = [resource for resource in resources if all(test(resource, wanted) for test, wanted in tests)]
    kept.sort(key=_sort_key(request.get("SortBy")), reverse=request.get("SortOrder", "Descending") == "Descending")
    start = _offset(request.get("NextToken"))
    size = request.get("MaxResults") or _DEFAULT_PAGE
    end = start + size
    return kept[start:end], {"NextToken": _token(end)} if end < len(kept) else {}


def _sort_key(sort_by: str | None) -> Callable[[Resource], Any]:
    if sort_by == "Name":
        return lambda resource: resource.name.lower()
    if sort_by == "Status":
        return lambda resource: getattr(resource, "status", "")
    return lambda resource: resource.created


def _token(offset: int) -> str:
    return base64.urlsafe_b64encode(str(offset).encode()).decode()


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error):
        raise ValidationException("NextToken is not one that an earlier answer gave") from None


_MOST_TAGS = 50


class Tags:
    """The operations AddTags, ListTags and DeleteTags for the resources of certain collections."""

    def __init__(self, collections: Sequence[Collection[Any]]) -> None:
        self._collections = collections

    async def add(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer AddTags."""
        resource = self._resource(request["ResourceArn"])
        tags = {**resource.tags, **tags_of(request)}
        if len(tags) > _MOST_TAGS:
            raise ValidationException(
                f"{resource.arn} would have {len(tags)} tags; a resource has {_MOST_TAGS} at most"
            )
        resource.tags = tags
        return {"Tags": _listed(tags)}

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListTags in one page, since a resource has at most 50 tags."""
        return {"Tags": _listed(self._resource(request["ResourceArn"]).tags)}

    async def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer DeleteTags."""
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
