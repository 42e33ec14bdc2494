"""Schedules of scheduled actions: checked as the service checks them; when they are due is the core's to say."""

from __future__ import annotations

import zoneinfo

from cohost.scaling.schedule_expression import check_expression
from local_aws.sagemaker.faults import ValidationException


def check_schedule(expression: str, timezone: str) -> None:
    """Check a scheduled action's expression and time zone.

    Raises:
        ValidationException: the service would refuse one of them.
    """
    try:
        check_expression(expression)
        zoneinfo.ZoneInfo(timezone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as fault:
        raise ValidationException(f"Schedule {expression} in {timezone}: {fault}") from None
