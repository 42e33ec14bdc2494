"""Read a request's texts within the catalog's limits, and compute a model's limit in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from .cohost_errors import BadInputError, TooLargeError, bad, fault

if TYPE_CHECKING:
    from .cohost_options import Options


# A tokenizer whose configuration states no maximum has a 30-digit maximum (transformers: VERY_LARGE_INTEGER).
_ABSURD = 1_000_000

_SHORTEST = 16


def length_limit(
    *, model: str, positions: int | None, offset: int, tokenizer_maximum: int | None, wanted: int | None
) -> int:
    """Return the largest number of tokens that a sequence may have, special tokens included.

    `positions` is the size of the model's position table, and `offset` the number of unused entries at its start:
    models of the RoBERTa kind number positions from after the padding index, so a table of 514 positions serves 512
    tokens. `wanted` is the catalog's `max_length`, which can only lower the limit.

    Raises:
        ValueError: neither model nor tokenizer nor catalog state a limit.
    """
    limits = [] if positions is None else [positions - offset]
    limits += [] if tokenizer_maximum is None or tokenizer_maximum > _ABSURD else [tokenizer_maximum]
    limits += [] if wanted is None else [wanted]
    if not limits:
        raise ValueError(fault("max_length", f"{model} and its tokenizer state no limit", fix="set max_length"))
    return min(limits)


def lengths_up_to(limit: int) -> tuple[int, ...]:
    """Return the lengths 16, 32, 64 and so on, in tokens, that are below the limit, followed by the limit."""
    return (*takewhile(lambda length: length < limit, (_SHORTEST << n for n in range(32))), limit)


_PAIR = {"text", "text_pair"}


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or a pair of texts that the model reads as one sequence."""

    first: str
    second: str | None = None


def read_texts(inputs: Any, options: Options, *, pairs: bool) -> list[Text]:
    """Return inputs (a text, a pair, or a list of them) as a list; `pairs` is true if the task accepts pairs.

    Raises:
        BadInputError: the inputs are of another type, or an empty list.
        TooLargeError: there are more texts, or longer ones, than the catalog allows.
    """
    if not isinstance(inputs, list):
        return [_read(inputs, "inputs", options, pairs=pairs)]
    if not inputs:
        raise bad("inputs", inputs, "at least one text")
    if len(inputs) > options.max_texts_per_request:
        problem, most = f"has {len(inputs)} texts", f"{options.max_texts_per_request} texts per request"
        raise TooLargeError(fault("inputs", problem, allowed=most, fix="send them in several requests"))
    return [_read(item, f"inputs[{index}]", options, pairs=pairs) for index, item in enumerate(inputs)]


def check_text(value: Any, field: str, most_characters: int) -> str:
    """Check the text in a field, and return it unchanged.

    Raises:
        BadInputError: the value is not a text, or holds half a character (a lone surrogate), which has no UTF-8 form.
        TooLargeError: the text has more than `most_characters` characters.
    """
    if not isinstance(value, str):
        raise bad(field, value, "a text")
    if len(value) > most_characters:
        problem = f"has {len(value)} characters"
        raise TooLargeError(fault(field, problem, allowed=f"{most_characters} characters", fix="shorten it"))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"character {error.start} is half a surrogate pair"
            raise BadInputError(fault(field, problem, fix="send well-formed Unicode")) from error
    return value


def _read(item: Any, field: str, options: Options, *, pairs: bool) -> Text:
    most = options.max_characters_per_text
    if not isinstance(item, dict):
        if not isinstance(item, str):
            raise bad(field, item, 'a text, or a pair {"text": ..., "text_pair": ...}' if pairs else "a text")
        return Text(check_text(item, field, most))
    if not pairs:
        raise bad(field, item, "a text, since this task knows no pairs")
    unknown = sorted(map(str, item.keys() - _PAIR))
    if unknown or "text" not in item:
        raise bad(field, item, 'a pair as {"text": ..., "text_pair": ...}')
    first = check_text(item["text"], f"{field}.text", most)
    second = item.get("text_pair")
    return Text(first, None if second is None else check_text(second, f"{field}.text_pair", most))
