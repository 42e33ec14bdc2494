"""The input of a handler: properties and content of one request or a batch, and formatters that parse it.

The content of a request, like that of an answer, is an ordered list of (key, value) pairs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


class PairList:
    """An ordered list of (key, value) pairs; keys may be None and may repeat, and `get` finds the first pair."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.values: list[bytes] = []

    def add(self, key: str | None = None, value: bytes | None = None) -> None:
        """Append a pair; a pair whose value is None is not added."""
        if value is not None:
            self.keys.append(key)
            self.values.append(value)

    def size(self) -> int:
        """Return the number of pairs."""
        return len(self.keys)

    def is_empty(self) -> bool:
        """Return True if there are no pairs."""
        return not self.keys

    def get(self, key: str | None) -> bytes | None:
        """Return the value of the first pair with this key; None if there is none."""
        return self.values[self.keys.index(key)] if key in self.keys else None

    def key_at(self, index: int) -> str | None:
        """Return the key of the pair at this position, counted from 0."""
        return self.keys[index]

    def value_at(self, index: int) -> bytes:
        """Return the value of the pair at this position, counted from 0."""
        return self.values[index]

    def get_keys(self) -> list[str | None]:
        """Return all keys in order."""
        return self.keys

    def get_values(self) -> list[bytes]:
        """Return all values in order."""
        return self.values


FORMATTER_MARK = "is_input_formatter"


def input_formatter(function: F) -> F:
    """Mark a function, (Input, **settings) → TextInput, as the one with which the stock handler parses each request."""
    setattr(function, FORMATTER_MARK, True)
    return function


@dataclass
class RequestInput:
    """One parsed request; the stock handler passes `parameters` to its pipeline as keyword arguments."""

    parameters: Any = field(default_factory=dict)


@dataclass
class TextInput(RequestInput):
    """A request whose input is text, a text pair, or a list of either."""

    input_text: Any = None


_BATCH_SIZE = "batch_size"
_PREFIX = "batch_"
_INDEX = slice(len(_PREFIX), len(_PREFIX) + 3)
_NAME = slice(len(_PREFIX) + 4, None)


class Input:
    """A request or batch: `properties` are headers and the server's additions, `content` is the body in pairs.

    In a batch every key is prefixed by `batch_NNN.` and the property `batch_size` is the number of requests;
    `get_batches` separates the requests. Property names are looked up regardless of letter case.
    """

    def __init__(self) -> None:
        self.function_name: str | None = None
        self.properties: dict[str, Any] = {}
        self.content = PairList()

    def is_batch(self) -> bool:
        """Return True for a batch of requests."""
        return _BATCH_SIZE in self.properties

    def get_batch_size(self) -> int:
        """Return the number of requests."""
        return int(self.properties.get(_BATCH_SIZE, "1"))

    def get_batches(self) -> list[Input]:
        """Return the requests of a batch, one `Input` each; for a single request, a list of only this object."""
        if not self.is_batch():
            return [self]
        batch = [Input() for _ in range(self.get_batch_size())]
        for name, value in self.properties.items():
            if name.startswith(_PREFIX) and name != _BATCH_SIZE:
                batch[int(name[_INDEX])].properties[name[_NAME]] = value
        for key, content in zip(map(str, self.content.keys), self.content.values, strict=True):
            batch[int(key[_INDEX])].content.add(key[_NAME], content)
        return batch

    def get_function_name(self) -> str | None:
        """Return the name of the requested handler function."""
        return self.function_name

    def get_properties(self) -> dict[str, Any]:
        """Return all properties."""
        return self.properties

    def get_property(self, key: str) -> Any:  # the value is text or a formatter function
        """Return the property of this name in any letter case; None if there is none."""
        return next((value for name, value in self.properties.items() if name.lower() == key.lower()), None)

    def get_content(self) -> PairList:
        """Return the content."""
        return self.content

    def is_empty(self) -> bool:
        """Return True if there is no content, as in the first call, in which a handler loads its model."""
        return self.content.is_empty()

    def contains_key(self, key: str) -> bool:
        """Return True if the content has this key."""
        return self.content.get(key) is not None

    def get_as_bytes(self, key: str | None = None) -> bytes | None:
        """Return the content of `key`; without `key`, the content of "data", else the first one; None if there is none.

        Raises:
            KeyError: a key is given, and the content does not have it.
        """
        if self.content.is_empty():
            return None
        value = self.content.get(key or "data")
        if value is None and key:
            msg = f"requested data for key:{key} is not found!"
            raise KeyError(msg)
        return self.content.value_at(0) if value is None else value

    def get_as_string(self, key: str | None = None) -> str:
        """Return the content that `get_as_bytes` returns, decoded as UTF-8; an empty text if there is no content."""
        return (self.get_as_bytes(key) or b"").decode("utf-8")

    def get_as_json(self, key: str | None = None) -> Any:
        """Return the content that `get_as_string` returns, parsed as JSON.

        Raises:
            json.JSONDecodeError: the content is not JSON.
        """
        return json.loads(self.get_as_string(key))
