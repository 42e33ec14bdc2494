"""The AWS query protocol for any service: botocore's model of the service defines the form of requests and answers.

A request is a form with keys such as `Parameters.member.1.ParameterKey=X`. An answer is XML in the order of the
operation's output shape (botocore's description of a type). Requests and answers are read and written by these shapes,
so no operation needs code of its own. Source: smithy.io, "AWS query protocol".
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element, SubElement, tostring

from botocore.model import ListShape, MapShape, StructureShape

from local_aws.kit.validation import service_model

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel, Shape


class QueryError(Exception):
    """The error with which a service of the query protocol rejects a request.

    Args:
        code: the error code of the query protocol, e.g. `AlreadyExistsException`.
        message: the error's text; AWS's own text where a client compares it.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        self.code = code
        self.message = message
        self.status = status
        super().__init__(message)


class QueryProtocol:
    """Reads the requests to one service of the query protocol, and writes its answers.

    Args:
        service: botocore's name of the service, e.g. `cloudformation`.
        title: the service's name in error texts.
    """

    def __init__(self, service: str, *, title: str) -> None:
        self._service = service
        self._title = title

    def parse_request(self, body: bytes) -> tuple[str, dict[str, Any]]:
        """Return the action's name and its typed parameters from a form body.

        Parameters that are not in botocore's model are ignored, since a newer SDK may send parameters that the
        installed botocore does not know.

        Raises:
            QueryError: `InvalidAction` if the action is missing, or unknown to the service; `ValidationError` if a
                required parameter is missing, or a value is not of its parameter's type.
        """
        form = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True))
        action = form.pop("Action", "")
        shape = self._operation(action).input_shape
        if shape is None:
            return action, {}
        arguments = _parse_structure(shape, _tree(form))
        for name in shape.required_members:
            if name not in arguments:
                raise _invalid(
                    f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: "
                    "Member must not be null"
                )
        return action, arguments

    def render_response(self, action: str, result: dict[str, Any]) -> bytes:
        """Return the XML answer of `action`; raise KeyError if `result` has a key that the action's output lacks."""
        root = Element(f"{action}Response", xmlns=self._namespace)
        shape = self._operation(action).output_shape
        if shape is not None:
            wrapper = SubElement(root, str(shape.serialization.get("resultWrapper", f"{action}Result")))
            _render_structure(wrapper, shape, result)
        SubElement(SubElement(root, "ResponseMetadata"), "RequestId").text = str(uuid.uuid4())
        return _document(root)

    def render_error(self, error: QueryError) -> bytes:
        """Return the XML answer to a rejected request."""
        root = Element("ErrorResponse", xmlns=self._namespace)
        detail = SubElement(root, "Error")
        SubElement(detail, "Type").text = "Sender"
        SubElement(detail, "Code").text = error.code
        SubElement(detail, "Message").text = xml_text(error.message)
        SubElement(root, "RequestId").text = str(uuid.uuid4())
        return _document(root)

    @property
    def _model(self) -> ServiceModel:
        return service_model(self._service)

    @property
    def _namespace(self) -> str:
        return str(self._model.metadata["xmlNamespace"])

    def _operation(self, action: str) -> OperationModel:
        if action not in self._model.operation_names:
            raise QueryError("InvalidAction", f"Could not find operation {action} for {self._title}")
        return self._model.operation_model(action)


def parse_form(body: bytes, shape: Shape) -> dict[str, Any]:
    """Return a form body's values, converted to the types of the shape; floating-point numbers and times stay text."""
    return _parse_structure(shape, _tree(dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True))))


def _invalid(message: str) -> QueryError:
    return QueryError("ValidationError", message)


def _tree(form: dict[str, str]) -> dict[str, Any]:
    """Nest the dotted keys of a form in dictionaries: `A.member.1=x` becomes `{"A": {"member": {"1": "x"}}}`."""
    root: dict[str, Any] = {}
    for key, value in form.items():
        node = root
        *path, leaf = key.split(".")
        for part in path:
            child = node.setdefault(part, {})
            node = child if isinstance(child, dict) else {}
        node[leaf] = value
    return root


def _parse_structure(shape: Shape, node: dict[str, Any]) -> dict[str, Any]:
    members = shape.members if isinstance(shape, StructureShape) else {}
    return {name: _parse(member, node[name], name) for name, member in members.items() if name in node}


def _parse(shape: Shape, node: Any, name: str) -> Any:  # a value of a form has any shape
    if isinstance(shape, StructureShape):
        return _parse_structure(shape, node if isinstance(node, dict) else {})
    if isinstance(shape, ListShape):
        items = node.get("member", {}) if isinstance(node, dict) else {}
        return [_parse(shape.member, items[index], name) for index in sorted(items, key=int)]
    if isinstance(shape, MapShape):
        entries = node.get("entry", {}) if isinstance(node, dict) else {}
        return {entry["key"]: _parse(shape.value, entry["value"], name) for entry in entries.values()}
    return _parse_scalar(shape.type_name, node, name)


def _parse_scalar(type_name: str, text: Any, name: str) -> Any:
    try:
        if type_name == "boolean":
            return {"true": True, "false": False}[str(text).lower()]
        if type_name in {"integer", "long"}:
            return int(text)
    except (KeyError, ValueError):
        raise _invalid(f"{name}: '{text}' is no {type_name}") from None
    return text


def _document(root: Element) -> bytes:
    text: bytes = tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="UTF-8"?>' + text


def _render_structure(parent: Element, shape: Shape, value: dict[str, Any]) -> None:
    members = shape.members if isinstance(shape, StructureShape) else {}
    unknown = set(value) - set(members)
    if unknown:
        raise KeyError(f"{shape.name} has no member {sorted(unknown)}")
    for name, member in members.items():
        if value.get(name) is not None:
            _render(SubElement(parent, name), member, value[name])


def _render(element: Element, shape: Shape, value: Any) -> None:  # a value of a form has any shape
    if isinstance(shape, StructureShape):
        _render_structure(element, shape, value)
    elif isinstance(shape, ListShape):
        for item in value:
            _render(SubElement(element, "member"), shape.member, item)
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            entry = SubElement(element, "entry")
            SubElement(entry, "key").text = xml_text(key)
            _render(SubElement(entry, "value"), shape.value, item)
    else:
        element.text = _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return xml_text(str(value))


def xml_text(text: str) -> str:
    """Replace control characters that XML 1.0 does not allow, such as those of a terminal's colours in a log line."""
    return "".join(char if char >= " " or char in "\t\n\r" else "?" for char in text)
