r"""Checks of requests against botocore's model of the service, like AWS's own checks.

botocore's models are AWS's published API definitions with all required members, lengths, ranges, patterns and
enumerations, so this module contains no list of them. Error texts have AWS's form: "1 validation error detected: Value
'x' at 'endpointName' failed to satisfy constraint: Member must …".

The patterns in the models (botocore 1.44.8) use elements that Python's `re` does not have: pairs of UTF-16 escapes, the
classes \p{L}, \p{Z}, \p{N}, \p{ASCII} and \p{Print}, and the anchor \z. \p{L} becomes \w, which also matches the
underscore and digits; every pattern with \p{L} allows both anyway.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

from local_aws.kit.errors import SerializationException, UnknownOperationException, ValidationException

if TYPE_CHECKING:
    from collections.abc import Iterator


_CLASSES = {
    r"\p{L}": r"\w",
    r"\p{Z}": r"\s",
    r"\p{N}": r"\d",
    r"\p{ASCII}": r"\x00-\x7f",
    r"\p{Print}": r"\x20-\x7e",
}
_SURROGATES = r"\\uD[89ABab][0-9A-Fa-f]{2}\\uD[C-Fc-f][0-9A-Fa-f]{2}"
_PIECE = re.compile(rf"\\p\{{\w+\}}|{_SURROGATES}|\\u[0-9A-Fa-f]{{4}}|\\.|[\[\]]|.", re.DOTALL)
_PAIR = re.compile(_SURROGATES)


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """Compile a pattern from a service model for use with `fullmatch`; these patterns have Java's syntax."""
    out: list[str] = []
    in_class = False
    for piece in _PIECE.findall(pattern):
        if piece in {"[", "]"}:
            in_class = piece == "["
            out.append(piece)
        elif piece in _CLASSES:
            out.append(_CLASSES[piece] if in_class else f"[{_CLASSES[piece]}]")
        elif _PAIR.fullmatch(piece):
            # Java's texts are UTF-16: a character beyond the first 65,536 is written as two escapes.
            high, low = (int(part, 16) for part in piece[2:].split(r"\u"))
            out.append(f"\\U{(high - 0xD800) * 0x400 + low - 0xDC00 + 0x10000:08x}")
        else:
            out.append(r"\Z" if piece == r"\z" else piece)
    return re.compile("".join(out))


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
}
_SHOWN_CHARACTERS = 256


@cache
def service_model(service: str) -> ServiceModel:
    """Return botocore's model of a service; keep it in a cache, since reading a model takes part of a second."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def check_request(operation: str, request: dict[str, Any], *, service: str, title: str) -> None:
    """Check a request to a service's control plane against botocore's model.

    Args:
        operation: the operation's name.
        request: the members of the request.
        service: botocore's name of the service, e.g. `sagemaker`.
        title: the service's name in error texts.

    Raises:
        UnknownOperationException: the service has no such operation.
        SerializationException: a value is of another JSON type than the operation takes.
        ValidationException: the request violates constraints; the text names all of them.
    """
    model = service_model(service)
    if operation not in model.operation_names:
        raise UnknownOperationException(f"The operation {operation} is not one of {title}'s")
    check_value(model.operation_model(operation).input_shape, request)


def check_value(shape: Shape | None, value: object, *, path: str = "") -> None:
    """Check a value against its shape (botocore's description of a type); raise the errors of `check_request`.

    `path` is the value's place in the request, for error texts.
    """
    broken = [] if shape is None else list(_broken(shape, value, path))
    if broken:
        plural = "s" if len(broken) > 1 else ""
        raise ValidationException(f"{len(broken)} validation error{plural} detected: {'; '.join(broken)}")


def _broken(shape: Shape, value: object, path: str) -> Iterator[str]:
    _check_json_type(shape, value, path)
    match shape:
        case StructureShape():
            yield from _broken_members(shape, value, path)
        case ListShape():
            yield from _broken_bounds(shape, value, path)
            for number, item in enumerate(_items(value), 1):
                yield from _broken(shape.member, item, f"{path}.{number}.member")
        case MapShape():
            yield from _broken_bounds(shape, value, path)
            yield from _broken_entries(shape, value, path)
        case _:
            yield from _broken_bounds(shape, value, path)
            yield from _broken_text(shape, value, path)


def _broken_members(shape: StructureShape, value: object, path: str) -> Iterator[str]:
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    for name, member in shape.members.items():
        at = _join(path, name)
        if given.get(name) is not None:
            yield from _broken(member, given[name], at)
        elif name in shape.required_members:
            yield _text(None, at, "Member must not be null")


def _broken_entries(shape: MapShape, value: object, path: str) -> Iterator[str]:
    entries: dict[str, Any] = value if isinstance(value, dict) else {}
    for key, item in entries.items():
        for part, checked, noun in ((shape.key, key, "keys"), (shape.value, item, "value")):
            constraints = [text.partition("constraint: ")[2] for text in _broken(part, checked, path)]
            if constraints:
                yield _text(value, path, f"Map {noun} must satisfy constraint: [{', '.join(constraints)}]")


def _broken_bounds(shape: Shape, value: object, path: str) -> Iterator[str]:
    sized = isinstance(value, str | list | dict)
    size = len(value) if isinstance(value, str | list | dict) else value
    if not isinstance(size, int | float) or isinstance(value, bool):
        return
    noun, least, most = ("length", "greater", "less") if sized else ("value", "greater", "less")
    if (minimum := shape.metadata.get("min")) is not None and size < minimum:
        yield _text(value, path, f"Member must have {noun} {least} than or equal to {minimum}")
    if (maximum := shape.metadata.get("max")) is not None and size > maximum:
        yield _text(value, path, f"Member must have {noun} {most} than or equal to {maximum}")


def _broken_text(shape: Shape, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or not isinstance(shape, StringShape):
        return
    if shape.enum and value not in shape.enum:
        yield _text(value, path, f"Member must satisfy enum value set: [{', '.join(shape.enum)}]")
    pattern, longest = shape.metadata.get("pattern"), shape.metadata.get("max", len(value))
    # A text that is too long is reported already; some of the patterns take long to match a long text.
    if pattern and len(value) <= longest and not matcher(pattern).fullmatch(value):
        yield _text(value, path, f"Member must satisfy regular expression pattern: {pattern}")


def _check_json_type(shape: Shape, value: object, path: str) -> None:
    allowed = _JSON_TYPES[shape.type_name]
    wrong_boolean = isinstance(value, bool) and bool not in allowed
    if wrong_boolean or not isinstance(value, allowed):
        raise SerializationException(f"Value {_shown(value)} at '{path}' cannot be read as a {shape.type_name}")


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _join(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name


def _text(value: object, path: str, constraint: str) -> str:
    return f"Value {_shown(value)} at '{path}' failed to satisfy constraint: {constraint}"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"'{text[:_SHOWN_CHARACTERS]}'"
