"""Differences between an answer and the recorded one: status, reason, headers, JSON text, numbers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmi_replay import Answer, Exchange
    from lmi_scenarios import Instead

TOLERANCE = 1e-4

_CUT = re.compile(r"\.\.\.\{TRUNCATED, (\d+) bytes\}$")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\{UUID\}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_START_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UNORDERED = "/ping"


def differences(exchange: Exchange, answer: Answer, ignored_keys: frozenset[str] = frozenset()) -> list[str]:
    """Return an answer's differences from the recorded one, one text each; `ignored_keys` of bodies are left out."""
    expected = exchange.response
    if expected["status"] is None:
        return [] if answer.reason == expected["exception"] else [f"{answer.reason}, recorded {expected['exception']}"]
    found = []
    if answer.status != expected["status"]:
        found.append(f"status {answer.status}, recorded {expected['status']}: {answer.body[:200]!r}")
    reason = expected.get("reason") or (expected.get("status_line") or "  ").split(" ", 2)[2]
    if reason and answer.reason != reason:
        found.append(f"reason {answer.reason!r}, recorded {reason!r}")
    found += _header_differences(expected["headers"], answer)
    if exchange.request.get("path", "").startswith(_UNORDERED):
        ignored_keys |= {"order"}
    return found + _body_differences(expected["body"], answer.body.decode("utf-8", "replace"), ignored_keys)


def off_pin(instead: Instead, status: int | None, body: str) -> list[str]:
    """List the differences from the answer that is pinned instead of the recorded one."""
    found = [] if status == instead.status else [f"status {status}, pinned {instead.status}"]
    expected = ".*".join(re.escape(part) for part in instead.body.split("..."))
    if re.fullmatch(expected, body, re.DOTALL) is None:
        found.append(f"body {body[:300]!r}, pinned {instead.body[:300]!r}")
    return found


def _header_differences(expected: dict[str, str], answer: Answer) -> list[str]:
    found = [f"header {name} is missing" for name in expected.keys() - answer.headers.keys()]
    found += [f"header {name} was not recorded" for name in answer.headers.keys() - expected.keys()]
    for name in expected.keys() & answer.headers.keys():
        given, recorded = answer.headers[name], expected[name]
        # Numbers may have another length; the client has already read as many bytes as the header says.
        if name != "content-length" and _UUID.sub("{UUID}", given) != _UUID.sub("{UUID}", recorded):
            found.append(f"header {name} is {given!r}, recorded {recorded!r}")
    return found


def _body_differences(expected: str, given: str, ignored_keys: frozenset[str]) -> list[str]:
    if cut := _CUT.search(expected):
        return _prefix_differences(expected[: cut.start()], given, int(cut[1]))
    try:
        recorded_value, value = json.loads(expected), json.loads(given)
    except ValueError:
        return [] if _blurred(expected) == _blurred(given) else [f"body {given[:300]!r}, recorded {expected[:300]!r}"]
    found = list(_value_differences(recorded_value, value, "$", ignored_keys))
    if not found and _shape(expected, ignored_keys) != _shape(given, ignored_keys):
        found.append(f"text {given[:200]!r}, recorded {expected[:200]!r}")
    return found


def _prefix_differences(expected: str, given: str, size: int) -> list[str]:
    """Compare a body that the recording has cut off: the numbers up to the cut, and the size to one percent."""
    recorded_numbers = [float(match[0]) for match in _NUMBER.finditer(expected)][:-1]
    numbers = [float(match[0]) for match in _NUMBER.finditer(given)][: len(recorded_numbers)]
    if len(numbers) < len(recorded_numbers) or abs(len(given) - size) > size / 100:
        return [f"{len(given)} bytes, recorded {size}"]
    pairs = zip(recorded_numbers, numbers, strict=True)
    return [f"{ours}, recorded {theirs}" for theirs, ours in pairs if abs(ours - theirs) > TOLERANCE * 10]


def _value_differences(expected: Any, given: Any, path: str, ignored_keys: frozenset[str]) -> Any:
    if isinstance(expected, dict) and isinstance(given, dict):
        if expected.keys() != given.keys():
            yield f"{path} has {sorted(given)}, recorded {sorted(expected)}"
            return
        for key in expected.keys() - ignored_keys:
            yield from _value_differences(expected[key], given[key], f"{path}.{key}", ignored_keys)
    elif isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        for index, (theirs, ours) in enumerate(zip(expected, given, strict=True)):
            yield from _value_differences(theirs, ours, f"{path}[{index}]", ignored_keys)
    elif not _equal(expected, given, path):
        yield f"{path} is {given!r}, recorded {expected!r}"


def _equal(expected: Any, given: Any, path: str) -> bool:
    if path.endswith("].startTime"):
        return _START_TIME.fullmatch(given) is not None
    if re.search(r"workers\[\d+\]\.id$", path):  # counted over the life of a server
        return isinstance(given, int)
    if path.endswith(".status") and {expected, given} == {"PENDING", "Unhealthy"}:
        # A model that loads: its first step takes seconds there and milliseconds here.
        return True
    if path == "$.error" and str(expected).isdigit() and str(given).isdigit():
        # The place of the greatest of a head's random numbers, as which a model was loaded that has no such head.
        return True
    if isinstance(expected, float) and isinstance(given, float):
        return abs(expected - given) <= TOLERANCE
    return bool(expected == given) and type(expected) is type(given)


def _shape(text: str, ignored_keys: frozenset[str]) -> list[str]:
    """Return the text without numbers and times, and with sorted lines where the order is random."""
    lines = _NUMBER.sub("0", text).replace('"PENDING"', '"Unhealthy"').split("\n")
    return sorted(line.rstrip(",") for line in lines) if "order" in ignored_keys else lines


def _blurred(text: str) -> str:
    """Return the text of several answers in lower case and without request ids, which the real server may leave out."""
    return re.sub(r"x-request-id: \S+\r\n", "", text.lower())
