"""Feature extraction: one vector per token, or with pooling one vector per text, as JSON like DJL's own handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cohost_errors import bad
from .cohost_options import POOLINGS
from .cohost_request import check_names, choice, flag, list_text, read_cut, vector_text
from .cohost_tasks import Plan, Want
from .cohost_texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cohost_options import Options
    from .cohost_request import Call, LengthRule
    from .cohost_tasks import Floats

_PARAMETERS = ("pooling", "normalize", "tokenize_kwargs")
_TOKENIZE_NAMES = frozenset({"truncation", "max_length", "padding"})
_WANTS = {"none": Want.TOKENS, "mean": Want.MEAN, "cls": Want.CLS}
_SMALLEST_NORM = 1e-12


class FeatureExtraction:
    """The task feature-extraction: vectors of the last hidden layer.

    The catalog's `pooling` and `normalize` are the defaults of the request's parameters of the same names.
    """

    def __init__(self, *, options: Options, rule: LengthRule) -> None:
        self._options = options
        self._rule = rule

    def plan(self, call: Call) -> Plan:
        """Read a call.

        The shape of the answer is (texts, 1, tokens, hidden) without pooling, and (texts, hidden) with pooling.

        Raises:
            BadInputError: a text or parameter has a wrong type or value.
            TooLargeError: there are more texts, or longer texts, than the catalog allows.
        """
        parameters = _merged(call.parameters)
        check_names(parameters, _PARAMETERS)
        texts = read_texts(call.inputs, self._options, pairs=False)
        pooling = choice(parameters, "pooling", POOLINGS, self._options.pooling)
        normalize = flag(parameters, "normalize", default=self._options.normalize)
        cut = read_cut(parameters, self._rule)

        def answer(outputs: Sequence[Floats]) -> str:
            vectors = [_normalized(output) if normalize else output for output in outputs]
            if pooling == "none":
                return list_text((_tokens_text(rows) for rows in vectors), 0)
            return list_text((vector_text(vector.tolist(), 1) for vector in vectors), 0)

        return Plan(texts, cut, _WANTS[pooling], answer, large=True)


def _tokens_text(rows: Floats) -> str:
    tokens = list_text((vector_text(row, 3) for row in rows.tolist()), 2)
    return list_text([tokens], 1)


def _normalized(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: Floats = vectors / np.maximum(lengths, _SMALLEST_NORM)
    return result


def _merged(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters merged with those in `tokenize_kwargs`, a parameter of transformers' pipeline."""
    inner = parameters.get("tokenize_kwargs")
    if inner is None:
        return dict(parameters)
    if not isinstance(inner, dict) or not inner.keys() <= _TOKENIZE_NAMES:
        raise bad("parameters.tokenize_kwargs", inner, f"an object of {', '.join(sorted(_TOKENIZE_NAMES))}")
    twice = sorted(inner.keys() & parameters.keys())
    if twice:
        raise bad(f"parameters.tokenize_kwargs.{twice[0]}", inner[twice[0]], "it once, in one of the two places")
    return {key: value for key, value in parameters.items() if key != "tokenize_kwargs"} | inner
