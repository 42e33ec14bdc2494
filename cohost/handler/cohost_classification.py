"""Text classification: the scores of `transformers.TextClassificationPipeline`, in the JSON of DJL's own handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .cohost_errors import bad
from .cohost_request import check_names, read_cut, text_of
from .cohost_tasks import Plan, Want
from .cohost_texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .cohost_options import Options
    from .cohost_request import Call, LengthRule
    from .cohost_tasks import Floats

_PARAMETERS = ("top_k", "function_to_apply", "return_all_scores")
_MULTI_LABEL = "multi_label_classification"


class TextClassification:
    """The task text-classification.

    `labels` are the labels' names by output index. `problem_type` comes from the model's configuration, and decides the
    default function that turns logits into scores.
    """

    def __init__(self, *, labels: Sequence[str], problem_type: str | None, options: Options, rule: LengthRule) -> None:
        self._labels = labels
        self._function = _default_function(problem_type, len(labels))
        self._options = options
        self._rule = rule

    def plan(self, call: Call) -> Plan:
        """Read a call. With the parameter `top_k`, a text's answer is a list of labels; without, its best label.

        Raises:
            BadInputError: a text or parameter has a wrong type or value.
            TooLargeError: there are more texts, or longer texts, than the catalog allows.
        """
        check_names(call.parameters, _PARAMETERS)
        if call.parameters.get("return_all_scores"):
            raise bad("parameters.return_all_scores", True, "top_k null instead")  # noqa: FBT003 - the value itself
        texts = read_texts(call.inputs, self._options, pairs=True)
        function = self._function_of(call.parameters)
        listed = "top_k" in call.parameters
        top_k = _top_k(call.parameters)

        def answer(outputs: Sequence[Floats]) -> str:
            scores = [function(logits) for logits in outputs]
            if not listed:
                return text_of([self._best(row) for row in scores])
            return text_of([self._ranked(row)[:top_k] for row in scores])

        return Plan(texts, read_cut(call.parameters, self._rule), Want.LOGITS, answer)

    def _function_of(self, parameters: Mapping[str, Any]) -> Callable[[Floats], Floats]:
        name = parameters.get("function_to_apply")
        if name is None:
            return self._function
        if not isinstance(name, str) or name.lower() not in _FUNCTIONS:
            raise bad("parameters.function_to_apply", name, "one of softmax, sigmoid, none")
        return _FUNCTIONS[name.lower()]

    def _best(self, scores: Floats) -> dict[str, Any]:
        best = int(scores.argmax())
        return {"label": self._labels[best], "score": scores[best].item()}

    def _ranked(self, scores: Floats) -> list[dict[str, Any]]:
        ranked = [{"label": label, "score": score} for label, score in zip(self._labels, scores.tolist(), strict=True)]
        return sorted(ranked, key=lambda entry: entry["score"], reverse=True)


def softmax(logits: Floats) -> Floats:
    """Return the softmax of the logits: numbers that add up to 1 in each row."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _sigmoid(logits: Floats) -> Floats:
    # Two forms, because e to the power of a large number overflows.
    power = np.exp(-np.abs(logits))
    scores: Floats = np.where(logits >= 0, 1 / (1 + power), power / (1 + power))
    return scores


def _unchanged(logits: Floats) -> Floats:
    return logits


_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {"softmax": softmax, "sigmoid": _sigmoid, "none": _unchanged}


def _default_function(problem_type: str | None, labels: int) -> Callable[[Floats], Floats]:
    """Return the function that transformers applies to the logits by default."""
    if problem_type == "regression":
        return _unchanged
    return _sigmoid if problem_type == _MULTI_LABEL or labels == 1 else softmax


def _top_k(parameters: Mapping[str, Any]) -> int | None:
    top_k = parameters.get("top_k")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise bad("parameters.top_k", top_k, "a number from 1, or null for all labels")
    return top_k
