"""A request's parameters: each is read by name, and one that nobody reads is refused with the nearest known name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cohost_errors import BadInputError, bad, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

LONGEST_FIRST = "longest_first"
ONLY_FIRST = "only_first"
ONLY_SECOND = "only_second"
OFF = "do_not_truncate"

_STRATEGIES = (LONGEST_FIRST, ONLY_FIRST, ONLY_SECOND, OFF)
_PADDINGS = (True, False, "longest", "do_not_pad", "max_length")
# The stock handler hands these on to its pipeline; here batches form by themselves.
_WITHOUT_EFFECT = frozenset({"batch_size", "num_workers"})
_LENGTH_NAMES = frozenset({"truncation", "max_length", "padding"})


@dataclass(frozen=True, slots=True)
class Cut:
    """How long a sequence may be: `strategy` says what is cut (`OFF`: refuse instead), `pad` fills up to `max_length`.

    `second_field` is the request's field that a pair's second text comes from, for error messages.
    """

    strategy: str
    max_length: int
    pad: bool = False
    second_field: str = "text_pair"


@dataclass(frozen=True, slots=True)
class LengthRule:
    """A model's limit in tokens, the shortest length with a token beside the special ones, and whether to cut."""

    limit: int
    shortest: int
    truncation: bool


def check_names(parameters: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses parameters that the task does not know.

    Raises:
        BadInputError: names the first one, and the nearest known name.
    """
    allowed = _WITHOUT_EFFECT | _LENGTH_NAMES | set(known)
    for name in parameters:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(allowed))}"
            raise BadInputError(f"parameters.{shown(name)[1:-1]}: is not known; {hint}")


def read_cut(parameters: Mapping[str, Any], rule: LengthRule, default: str = LONGEST_FIRST) -> Cut:
    """The length parameters of a request: `truncation`, `max_length` (the model's limit at most), `padding`.

    Raises:
        BadInputError: one of them has a value that is not allowed.
    """
    strategy = default if rule.truncation else OFF
    wanted = parameters.get("truncation")
    if isinstance(wanted, bool):
        strategy = default if wanted else OFF
    elif wanted is not None:
        strategy = choice(parameters, "truncation", _STRATEGIES, default)
    length = parameters.get("max_length")
    if length is None:
        length = rule.limit
    elif isinstance(length, bool) or not isinstance(length, int) or length < rule.shortest:
        raise bad("parameters.max_length", length, f"a number of tokens from {rule.shortest} to {rule.limit}")
    padding = parameters.get("padding")
    if padding is not None and padding not in _PADDINGS:
        raise bad("parameters.padding", padding, "true, false or max_length")
    return Cut(strategy, min(length, rule.limit), pad=padding == "max_length")


def choice(parameters: Mapping[str, Any], name: str, allowed: Sequence[str], default: str) -> str:
    """A parameter that is one of several words.

    Raises:
        BadInputError: it is anything else.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if value not in allowed:
        raise bad(f"parameters.{name}", value, f"one of {', '.join(allowed)}")
    return str(value)


def flag(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """A parameter that is true or false.

    Raises:
        BadInputError: it is anything else.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"parameters.{name}", value, "true or false")
    return value
