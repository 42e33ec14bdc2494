"""Filtering, sorting and paging of the List operations (AWS API reference: ListEndpoints and its like)."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, TypeVar

from local_aws.sagemaker.faults import ValidationException
from local_aws.sagemaker.registry import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

R = TypeVar("R", bound=Resource)

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
    """The resources that a List request asks for, and `{"NextToken": …}` if more follow.

    Raises:
        ValidationException: the token is none that an earlier answer gave.
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
