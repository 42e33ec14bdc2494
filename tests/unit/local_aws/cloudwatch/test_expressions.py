"""Metric math of alarms."""

from __future__ import annotations

import pytest

from local_aws.cloudwatch.expressions import NotEmulated, names_in, parse, values_of

SERIES: dict[str, list[float | None]] = {"m1": [4.0, 6.0, None], "m2": [2.0, 0.0, 5.0], "none": [None, None, None]}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("m1 / m2", [2, None, None]),
        ("100 * m2 / (m1 + m2)", [100 / 3, 0, None]),
        ("-m2 ^ 2", [-4, 0, -25]),
        ("FILL(m1, 0)", [4, 6, 0]),
        ("FILL(none, 0)", [None, None, None]),
        ("SUM([m1, m2, none])", [6, 6, 5]),
        ("AVG([m1, m2])", [3, 3, 5]),
        ("MAX([m1, 5])", [5, 6, 5]),
        ("MIN([none])", [None, None, None]),
        ("IF(m2 > 1, m1, 0)", [4, 0, None]),
        ("ABS(m2 - m1)", [2, 6, None]),
        ("SUM([FILL(none, 0), 0 * m2])", [0, 0, 0]),
        ("m1 ^ 600", [None, None, None]),
        ("(0 - m1) ^ 0.5", [None, None, None]),
        ("m2 * 1e308 * 10", [None, 0, None]),
    ],
)
def test_arithmetic_on_series(expression: str, expected: list[float | None]) -> None:
    """Arithmetic works per period; a missing value stays missing unless a function replaces it."""
    assert values_of(parse(expression), SERIES, 3) == expected


@pytest.mark.parametrize(
    "expression",
    ["m1 +", "RATE(m1)", "SUM(m1)", "m1.real", "m1 and m2", "m1[0]", "SELECT AVG(x) FROM y", "SUM([])", "open('x')"],
)
def test_what_is_not_emulated_is_refused_by_name(expression: str) -> None:
    """An expression outside the emulated ones is rejected with the part that is not known."""
    with pytest.raises(NotEmulated):
        parse(expression)


def test_strings_and_chains_of_comparisons_are_refused_when_worked_out() -> None:
    """Strings and chained comparisons in an expression are rejected during the evaluation."""
    for expression in ("1 < m1 < 3", "'a'", "unknown"):
        with pytest.raises(NotEmulated):
            values_of(parse(expression), SERIES, 3)


def test_the_ids_of_an_expression() -> None:
    """Names of functions are no ids of an expression."""
    assert set(names_in(parse("SUM([FILL(m1, 0), m2])"))) == {"m1", "m2"}
