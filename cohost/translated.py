"""Answers of DJL's Java translators in the shapes of every other design, so that callers need not know who answers.

A translator answers one text with its labels or its vector, and a list of texts with a list of these; every other
handler answers with a list, one result a text (DJL 0.36.0: TextClassificationServingTranslator,
TextEmbeddingServingTranslator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "className"
_PROBABILITY = "probability"
_TOP_K = "top_k"


def as_results(content: Any, parameters: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """An answer as a list with one result a text; what no translator has written is returned as it is.

    Labels become `{"label", "score"}`: the best of each text, or with the parameter `top_k` a list of them. A
    translator does not read that parameter, and gives five labels at most.
    """
    if _is_vector(content):
        return [content]
    texts = [content] if _are_classes(content) else content
    if not isinstance(texts, list) or not texts or not all(map(_are_classes, texts)):
        return content
    ranked = [[{"label": one[_NAME], "score": one[_PROBABILITY]} for one in classes] for classes in texts]
    if parameters is None or _TOP_K not in parameters:
        return [classes[0] for classes in ranked]
    most = parameters[_TOP_K]
    return [classes[:most] if isinstance(most, int) else classes for classes in ranked]


def count_results(content: list[Any]) -> int:
    """How many texts an answer is about."""
    return 1 if _is_vector(content) or _are_classes(content) else len(content)


def _is_vector(content: Any) -> bool:  # noqa: ANN401 - any JSON value
    """One text's embedding. No other answer is a list of numbers; the first tells, since there may be thousands."""
    return isinstance(content, list) and bool(content) and isinstance(content[0], float)


def _are_classes(content: Any) -> TypeGuard[list[dict[str, Any]]]:  # noqa: ANN401 - any JSON value
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, dict) and one.keys() == {_NAME, _PROBABILITY} for one in content)
    )
