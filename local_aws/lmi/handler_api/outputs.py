"""The output of a handler: status, message, headers and content."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Self

from local_aws.lmi.handler_api.inputs import PairList

if TYPE_CHECKING:
    from collections.abc import Mapping


_HANDLER_FAILURE = 424


class Output:
    """An answer: `code` and `message` become the status line, `properties` its headers, `content` its body."""

    def __init__(self, code: int = 200, message: str = "OK") -> None:
        self.code = code
        self.message = message
        self.properties: dict[str, Any] = {}
        self.content = PairList()

    def set_code(self, code: int) -> Self:
        """Set the HTTP status."""
        self.code = code
        return self

    def set_message(self, message: str) -> Self:
        """Set the reason phrase of the status line."""
        self.message = message
        return self

    def error(self, error: str, code: int = _HANDLER_FAILURE, message: str = "invoke handler failure") -> Self:
        """Make this an error answer, whose JSON body holds code, message and the text `error`."""
        self.code = code
        self.message = message
        self.add_property("content-type", "application/json")
        return self.add_as_json({"code": code, "message": message, "error": error})

    def add_property(self, key: str, val: Any) -> Self:  # a value of any type is sent as text
        """Set a header of the answer."""
        self.properties[key] = val
        return self

    def get_properties(self) -> dict[str, Any]:
        """Return all headers."""
        return self.properties

    def get_property(self, key: str) -> Any:
        """Return the header of exactly this name; None if there is none."""
        return self.properties.get(key)

    def add(self, value: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        """Add content to the answer: bytes unchanged, text as UTF-8, any other value as JSON.

        In a batch, `key` (from the input's `key_at`) or `batch_index` identifies the request that the content answers.
        """
        if batch_index is not None:
            key = f"batch_{batch_index}.{key or ''}"
        if isinstance(value, str):
            value = value.encode("utf-8")
        elif not isinstance(value, bytes | bytearray):
            value = encode_json(value)
        self.content.add(key, bytes(value))
        return self

    def add_as_json(self, val: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        """Add a value as JSON; `key` and `batch_index` mean the same as in `add`.

        Raises:
            ValueError: the value holds NaN or an infinity, which JSON cannot express.
        """
        return self.add(encode_json(val), key=key, batch_index=batch_index)

    @staticmethod
    def binary_encode(data: Mapping[str, Any]) -> bytearray:
        """Return an asynchronous handler's answer as bytes: a map of "data", "last", and for errors "code" and "error".

        The bytes are the number of entries (signed 16 bits), then the key and the value of each entry as texts. Each
        text is written as its length in bytes (signed 32 bits), then its UTF-8.
        """
        message = bytearray(struct.pack(">h", len(data)))
        for entry in data.items():
            for text in entry:
                encoded = str(text).encode("utf-8")
                message += struct.pack(">i", len(encoded)) + encoded
        return message


def encode_json(value: Any) -> bytes:
    """Return a value as JSON in the form of DJL's Python handlers: indented by two, no blank after colons, no NaN.

    Raises:
        ValueError: the value holds NaN or an infinity.
        TypeError: the value holds something that is neither JSON nor a numpy number or array.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2, separators=(",", ":"), default=_plain)
    return text.encode("utf-8")


def _plain(value: Any) -> Any:  # converts scalars and arrays of numpy, and dates
    if type(value).__module__ == "numpy":  # the real server fails on tensors (recorded: 30)
        return value.tolist()
    if hasattr(value, "isoformat"):
        return str(value)
    msg = f"Object of type {type(value).__name__} is not JSON serializable"
    raise TypeError(msg)
