"""What the account holds: models, endpoint configurations and endpoints by name, with the service's texts.

Names are unique without regard to letter case and ARNs are in lower case, but the case given is kept (AWS API
reference: CreateEndpoint, EndpointName).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from local_aws.sagemaker.faults import ValidationException

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(kw_only=True)
class Resource:
    """A named thing of the account; `definition` is the request that created it, without name and tags."""

    name: str
    arn: str
    definition: dict[str, Any]
    tags: dict[str, str]
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def modified(self) -> datetime:
        """When it last changed; what cannot change was last changed at its creation."""
        return self.created


R = TypeVar("R", bound=Resource)


class Collection(Generic[R]):
    """All resources of one kind; `noun` is the kind in the service's texts, `arn_part` in its ARNs."""

    def __init__(self, noun: str, arn_prefix: str, arn_part: str) -> None:
        self._noun = noun
        self._arn_start = f"{arn_prefix}:{arn_part}/"
        self._by_arn: dict[str, R] = {}

    def __iter__(self) -> Iterator[R]:
        """All resources, as they are now."""
        return iter(list(self._by_arn.values()))

    def arn(self, name: str) -> str:
        """The ARN that a resource of that name has, existing or not."""
        return self._arn_start + name.lower()

    def check_free(self, name: str) -> None:
        """Raise ValidationException if there is a resource of that name."""
        if self.arn(name) in self._by_arn:
            raise ValidationException(f'Cannot create already existing {self._noun} "{self.arn(name)}".')

    def add(self, resource: R) -> None:
        """Take in a resource; raises as `check_free` does."""
        self.check_free(resource.name)
        self._by_arn[resource.arn] = resource

    def get(self, name: str) -> R:
        """The resource of that name; raises ValidationException if there is none."""
        if (resource := self._by_arn.get(self.arn(name))) is None:
            raise ValidationException(f'Could not find {self._noun} "{self.arn(name)}".')
        return resource

    def find(self, name: str) -> R | None:
        """The resource whose name is exactly this one, in letter case too; None if there is none."""
        resource = self._by_arn.get(self._arn_start + name.lower())
        return resource if resource is not None and resource.name == name else None

    def by_arn(self, arn: str) -> R | None:
        """The resource of that ARN; None if there is none."""
        return self._by_arn.get(arn)

    def remove(self, name: str) -> None:
        """Take out a resource; raises as `get` does."""
        del self._by_arn[self.get(name).arn]


def tags_of(request: dict[str, Any]) -> dict[str, str]:
    """A request's list of tags as a map.

    Raises:
        ValidationException: a key stands twice.
    """
    tags = request.get("Tags") or []
    keys = [tag["Key"] for tag in tags]
    for key in keys:
        if keys.count(key) > 1:
            raise ValidationException(f"Duplicate tag key {key}: tag keys must be unique per resource")
    return {tag["Key"]: tag["Value"] for tag in tags}
