"""The moment that a build is of, so that the same build can be made again on another day."""

from __future__ import annotations

import datetime as dt
import os


def now() -> dt.datetime:
    """The moment in UTC: that of SOURCE_DATE_EPOCH where it is set, else the machine's."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch.isdecimal() else dt.datetime.now(dt.UTC)
