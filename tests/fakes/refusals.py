"""Assertions for errors by code and field, so that their texts may change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cohost.archives.errors import CodedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refused(
    code: str, field: str | None = None, *, kind: type[CodedError] = CodedError
) -> Iterator[pytest.ExceptionInfo[CodedError]]:
    """Expect an error with a code, a class, and an optional field; yield pytest's exception info."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code!r} was raised: {caught.value}"
    if field is not None:
        assert caught.value.field == field
