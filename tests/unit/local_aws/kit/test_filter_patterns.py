"""Filter patterns of space-delimited fields: what matches, what is taken from a line, and what is refused."""

from __future__ import annotations

import pytest

from local_aws.kit.filter_patterns import datum_of, parse_pattern

LINE = "INFO  PyProcess W-98-minilm-stdout: [1,0]<stdout>:cohost cohost-metrics mini 3 1 90.5"
PATTERN = '[..., mark = "cohost-metrics", model, requests, errors, latency_ms]'
LATENCY = {
    "metricName": "Latency",
    "metricNamespace": "N",
    "metricValue": "$latency_ms",
    "unit": "Milliseconds",
    "dimensions": {"Model": "$model"},
}


def test_fields_are_counted_from_the_end_of_the_line() -> None:
    """Whatever a server puts in front belongs to the ellipsis."""
    fields = parse_pattern(PATTERN).match(LINE)
    assert fields == {
        "mark": "cohost-metrics",
        "model": "mini",
        "requests": "3",
        "errors": "1",
        "latency_ms": "90.5",
    }


@pytest.mark.parametrize("line", ["", "cohost-metrics mini 3 1", f"{LINE} 4", LINE.replace("cohost-metrics", "other")])
def test_another_line_does_not_match(line: str) -> None:
    """Too few fields, one too many behind, or another mark."""
    assert parse_pattern(PATTERN).match(line) is None


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        ("[a, b]", "x y", True),
        ("[a, b]", "x y z", False),
        ("[a, b]", '[x 1] "y z"', True),
        ("[a != x, b]", "x y", False),
        ("[a = x*, b]", "xyz y", True),
        ("[a = x*, b]", "yx y", False),
    ],
)
def test_fields_conditions_and_groups(pattern: str, line: str, matches: bool) -> None:  # noqa: FBT001 - a case
    """Without an ellipsis all fields are named; text in quotes or brackets is one field."""
    assert (parse_pattern(pattern).match(line) is not None) is matches


@pytest.mark.parametrize("pattern", ["", "ERROR", "{ $.a = 1 }", "[a, ..., b]", "[a > 1]", "[]", "[...]"])
def test_a_pattern_that_is_not_evaluated_is_refused(pattern: str) -> None:
    """Nothing is taken for a filter that would find other lines than CloudWatch does."""
    with pytest.raises(ValueError, match=r"pattern|field"):
        parse_pattern(pattern)


def test_a_datum_has_the_value_and_the_dimensions_of_the_line() -> None:
    """A value that is no number gives none."""
    pattern = parse_pattern(PATTERN)
    assert datum_of(pattern, LATENCY, LINE) == {
        "MetricName": "Latency",
        "Value": 90.5,
        "Unit": "Milliseconds",
        "Dimensions": [{"Name": "Model", "Value": "mini"}],
    }
    assert datum_of(pattern, LATENCY, LINE.replace("90.5", "-")) is None
    assert datum_of(pattern, LATENCY, "other") is None
    once = {"metricName": "Lines", "metricNamespace": "N", "metricValue": "1"}
    assert datum_of(pattern, once, LINE) == {"MetricName": "Lines", "Value": 1, "Unit": "None", "Dimensions": []}
