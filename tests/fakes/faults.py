"""Assertions for errors of AWS services and of the emulated server by code, so that their texts may change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from local_aws.kit.errors import ServiceFault
from local_aws.kit.query_protocol import QueryError
from local_aws.lmi.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def faulted(code: str, status: int | None = None, about: str = "") -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error with a code, an optional HTTP status, and a word of its text.

    `about` is the member of the request or the resource that the error is about: the services state it in the text
    alone. The error comes through boto3 or from the emulation itself; yields pytest's exception info.
    """
    with pytest.raises((ClientError, ServiceFault, QueryError, Fault)) as caught:
        yield caught
    found, found_status, text = _parts(caught.value)
    assert (found, found_status) == (code, found_status if status is None else status), text
    assert about in text


def _parts(error: Any) -> tuple[str, int, str]:
    """Return the code, HTTP status and text of an error; DJL Serving's code is the type in its answer."""
    if isinstance(error, ClientError):
        told = error.response["Error"]
        return told["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"], told.get("Message") or ""
    return error.kind if isinstance(error, Fault) else error.code, error.status, str(error)
