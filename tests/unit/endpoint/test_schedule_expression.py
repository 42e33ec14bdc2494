"""Schedule expressions: those that Application Auto Scaling accepts, and common mistakes."""

from __future__ import annotations

import pytest

from cohost.endpoint.schedules import check_expression


@pytest.mark.parametrize(
    "text",
    [
        "cron(0 8 ? * MON-FRI *)",
        "cron(0 10 * * ? *)",
        "cron(15 12 * * ? *)",
        "cron(0 18 ? * 2-6 *)",
        "cron(0/5 8-17 ? * MON-FRI *)",
        "cron(0 8,12,18 1 1,4,JUL-SEP ? 2026-2030)",
        "cron(0 8 L * ? *)",
        "cron(0 8 15W * ? *)",
        "cron(0 8 ? * 2#1 *)",
        "rate(1 day)",
        "rate(12 hours)",
        "at(2026-12-24T08:00:00)",
    ],
)
def test_expressions_of_the_service_pass_unchanged(text: str) -> None:
    """Schedule expressions that AWS documents are accepted unchanged."""
    assert check_expression(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 8 ? * MON-FRI *", r"is a bare cron line.*write 'cron\(0 8 \? \* MON-FRI \*\)'"),
        ("cron(0 8 * * 1-5)", "has 5 fields instead of 6"),
        ("cron(0 8 * * MON-FRI *)", r"must be \?"),
        ("cron(0 8 ? * ? *)", r"must be \?"),
        ("cron(60 8 ? * MON *)", "'60' is not a value for minutes"),
        ("cron(0 24 ? * MON *)", "'24' is not a value for hours"),
        ("cron(0 8 ? * 0-4 *)", "'0-4' is not a value for day of the week"),
        ("cron(0 8 ? * FRI-MON *)", "'FRI-MON' is not a value for day of the week"),
        ("cron(0 8 32 * ? *)", "'32' is not a value for day of the month"),
        ("cron(0 8 ? * MON 1999-)", "'1999-' is not a value for year"),
        ("cron(0 8 ? * mon *)", "'mon' is not a value for day of the week"),
        ("cron(0/0 8 ? * MON *)", "'0/0' is not a value for minutes"),
        ("rate(1 hours)", "1 goes with hour"),
        ("rate(5 minute)", "5 goes with minutes"),
        ("rate(0 minutes)", "none of the three kinds"),
        ("at(2026-02-30T08:00:00)", "is not a time"),
        ("every morning", "none of the three kinds"),
        ("", "none of the three kinds"),
    ],
)
def test_other_expressions_are_refused_with_the_reason(text: str, why: str) -> None:
    """An invalid expression is rejected with the wrong part and the allowed values."""
    with pytest.raises(ValueError, match=why) as caught:
        check_expression(text)

    assert "; allowed: cron(" in str(caught.value)
    assert "; fix: " in str(caught.value)
