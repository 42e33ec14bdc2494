"""Answers of DJL's translators, given to callers in the shapes that every other design has."""

from __future__ import annotations

from typing import Any

import pytest

from cohost.endpoint.invocation_payloads import as_results, count_results

ONE = [{"className": "yes", "probability": 0.75}, {"className": "no", "probability": 0.25}]
OTHER = [{"className": "no", "probability": 1}, {"className": "yes", "probability": 0}]
BEST, SECOND = {"label": "yes", "score": 0.75}, {"label": "no", "score": 0.25}


@pytest.mark.parametrize(
    ("content", "parameters", "expected"),
    [
        (ONE, None, [BEST]),
        (ONE, {"top_k": None}, [[BEST, SECOND]]),
        (ONE, {"top_k": 1}, [[BEST]]),
        ([ONE, OTHER], {}, [BEST, {"label": "no", "score": 1}]),
        ([0.5, -0.5], None, [[0.5, -0.5]]),
        ([[0.5], [1]], None, [[0.5], [1]]),
    ],
)
def test_one_result_a_text(content: Any, parameters: dict[str, Any] | None, expected: Any) -> None:
    """Answers of DJL's translator and of the handler have one form for a caller."""
    assert as_results(content, parameters) == expected


@pytest.mark.parametrize(
    "content",
    [
        [{"label": "yes", "score": 0.9}],
        [[{"label": "yes", "score": 0.9}]],
        [{"sequence": "s", "labels": ["a"], "scores": [1.0]}],
        [[[[0.1, 0.2]]]],
        [],
        {"className": "x"},
        [{"className": "x", "probability": 1, "more": 2}],
    ],
)
def test_other_answers_stay_as_they_are(content: Any) -> None:
    """An answer of another handler is not converted as an answer of DJL's translator."""
    assert as_results(content, {"top_k": 1}) == content


def test_results_are_counted_by_text() -> None:
    """The load test checks that each text got its own result."""
    assert [count_results(content) for content in (ONE, [ONE, OTHER], [0.1] * 384, [[0.1]] * 3)] == [1, 2, 1, 3]
