"""A request for inference: what of it reaches a handler, and which model it is for.

Source: DJL Serving 0.36.0 (RequestParser, InferenceRequestHandler), recorded (03_invocations_routing,
23_cohost_custom_attributes).
"""

from __future__ import annotations

import email.parser
import email.policy
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from local_aws.lmi.faults import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request

    from local_aws.lmi.frames import Content

CUSTOM_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"

_MODEL_NAME = "model_name"
_MODEL_VERSION = "model_version"
_SPELLING = {"Sagemaker": "SageMaker", "Id": "Id"}


class Invocation:
    """`properties` are headers and custom attributes, `contents` query, form fields and body, in this order."""

    def __init__(self, request: Request, body: bytes) -> None:
        """Raises BadRequest when the request tries to choose the handler function."""
        self._properties = _properties(request.headers.items())
        self._query = parse_qsl(request.url.query, keep_blank_values=True)
        self.contents: Sequence[Content] = [(key, value.encode()) for key, value in self._query]
        self.contents = [*self.contents, *_body_contents(request.headers.get("content-type", ""), body)]
        if "handler" in self._properties:
            raise BadRequest("The handler can't be overridden in a request")

    @property
    def properties(self) -> dict[str, str]:
        """The properties under their own names."""
        return dict(self._properties.values())

    def value_of(self, name: str) -> str | None:
        """A property whatever the case of its name, or None."""
        found = self._properties.get(name.lower())
        return None if found is None else found[1]

    @property
    def model_name(self) -> str | None:
        """The model that the request names: by query, header or custom attribute, or form field."""
        query = dict(reversed(self._query)).get(_MODEL_NAME)
        if query:
            return query
        if _MODEL_NAME in self._properties:
            return self._properties[_MODEL_NAME][1]
        return next((value.decode("utf-8", "replace") for key, value in self.contents if key == _MODEL_NAME), None)

    @property
    def model_version(self) -> str | None:
        """The version that the request names."""
        query = dict(reversed(self._query)).get(_MODEL_VERSION)
        return query if query is not None else self._properties.get(_MODEL_VERSION, ("", None))[1]


def _properties(headers: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Properties by lower-case name, since their names have no case; a later one replaces an earlier one."""
    properties: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        if name == CUSTOM_ATTRIBUTES:
            pairs = (pair.split("=", 1) for pair in value.split(";") if "=" in pair)
            properties |= {key.strip().lower(): (key.strip(), text.strip()) for key, text in pairs}
        else:
            properties[name] = (_usual_spelling(name), value)
    return properties


def _usual_spelling(name: str) -> str:
    """ASGI hands header names over in lower case; handlers look them up as "Content-Type"."""
    if "_" in name:
        return name
    return "-".join(_SPELLING.get(part, part) for part in name.title().split("-"))


def _body_contents(content_type: str, body: bytes) -> list[Content]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        return [(key, value.encode()) for key, value in fields]
    if kind.startswith("multipart/"):
        return _form_parts(content_type, body)
    return [("data", body)]


def _form_parts(content_type: str, body: bytes) -> list[Content]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    parts = message.iter_parts() if message.is_multipart() else []
    fields = [(part.get_param("name", header="content-disposition"), part.get_payload(decode=True)) for part in parts]
    return [(str(name), value) for name, value in fields if name and isinstance(value, bytes)]
