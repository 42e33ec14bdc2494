"""The catalog's section `deployment` and its key `expires`, for updates and expiry of the endpoint.

`deployment` sets how an update moves traffic to new instances, and which alarms roll the update back. Limits: SageMaker
API reference, DeploymentConfig; developer guide, "Deployment guardrails for updating models in production". `expires`
sets the end of the endpoint: a duration (`8h`) counts from the deploy, a date or a timestamp is absolute. All times are
in UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cohost.catalog.sections.rules import Settings
from cohost.errors import refuse

ROLLBACK_ALARMS: Final = ("server_errors_percent", "model_errors_percent", "model_latency_p99_ms")
"""The alarms that detect a bad model within minutes; others are slow, or may be in ALARM before the deployment."""

MOST_PERCENT: Final = 50
SIZES: Final = {"canary": "canary_size", "linear": "linear_step_size", "rolling": "maximum_batch_size"}

ALLOWED_SIZE: Final = "a number of instances such as 1, or a share such as 25%, up to half of the instances"
_PERCENT: Final = re.compile(r"([1-9]\d?)%")


def _check_size(size: int | str) -> int | str:
    percent = _PERCENT.fullmatch(size) if isinstance(size, str) else None
    if (percent is None and isinstance(size, str)) or (percent and int(percent[1]) > MOST_PERCENT):
        fix = f"write a number, or 1% to {MOST_PERCENT}%"
        refuse("value-not-allowed", f"got {size!r}", allowed=ALLOWED_SIZE, fix=fix)
    return size


Size = Annotated[Annotated[int, Field(ge=1, le=50)] | str, AfterValidator(_check_size)]
Wait = Annotated[int, Field(ge=0, le=3600)]


class Guardrails(Settings):
    """The catalog's section `deployment`: SageMaker's deployment guardrails for updates of the endpoint.

    Attributes:
        strategy: moves all traffic at once (all-at-once), a first part and then the rest (canary), equal parts
            (linear), or batches of instances (rolling).
        canary_size: the size of the first part, with strategy canary.
        linear_step_size: the size of each part, with strategy linear.
        maximum_batch_size: the size of each batch, with strategy rolling.
        wait_interval_in_seconds: the time between parts or batches, during which the alarms are watched.
        termination_wait_in_seconds: the time that the old instances stay after all traffic has moved, during which the
            alarms are watched; not with strategy rolling.
        maximum_execution_timeout_in_seconds: the time after which the update is rolled back; None means SageMaker's
            default.
        rollback_alarms: true for the stack's own alarms of errors and latency, false for none, or names of alarms.
    """

    strategy: Literal["all-at-once", "canary", "linear", "rolling"] = Field(
        default="all-at-once", description="all-at-once, canary, linear or rolling"
    )
    canary_size: Size | None = Field(default=None, description=ALLOWED_SIZE)
    linear_step_size: Size | None = Field(default=None, description=ALLOWED_SIZE)
    maximum_batch_size: Size | None = Field(default=None, description=ALLOWED_SIZE)
    wait_interval_in_seconds: Wait = Field(default=300, description="0 to 3600 seconds")
    termination_wait_in_seconds: Wait = Field(default=300, description="0 to 3600 seconds")
    maximum_execution_timeout_in_seconds: int | None = Field(
        default=None, ge=600, le=28_800, description="600 to 28800 seconds"
    )
    rollback_alarms: bool | Annotated[tuple[str, ...], Field(min_length=1, max_length=10, strict=False)] = Field(
        default=True, description="true, false, or a list of 1 to 10 names of alarms"
    )

    @property
    def size(self) -> int | str | None:
        """Return the size of each part or batch in which the strategy updates the endpoint; None with all-at-once."""
        found: int | str | None = getattr(self, SIZES[self.strategy]) if self.strategy in SIZES else None
        return found


def size_of(size: int | str) -> tuple[str, int]:
    """Convert a number of instances, or a percentage, to Type and Value of SageMaker's CapacitySize."""
    if isinstance(size, int):
        return "INSTANCE_COUNT", size
    return "CAPACITY_PERCENT", int(size.removesuffix("%"))


ALLOWED_EXPIRES: Final = (
    "8h, 90m or 7d; a day such as 2026-12-31; a moment with its zone such as 2026-12-31T18:00+09:00"
)
SHORTEST: Final = dt.timedelta(minutes=15)
"""The shortest allowed duration of `expires`: an endpoint takes ten minutes to come into service."""

LONGEST: Final = dt.timedelta(days=366)

_LENGTH: Final = re.compile(r"([1-9]\d{0,5})(m|h|d)")
_UNITS: Final = {"m": dt.timedelta(minutes=1), "h": dt.timedelta(hours=1), "d": dt.timedelta(days=1)}
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The expiry of an endpoint: either `after`, a duration from the deploy, or `at`, a moment in UTC, is set."""

    after: dt.timedelta | None = None
    at: dt.datetime | None = None

    def moment(self, start: dt.datetime) -> dt.datetime:
        """Return the moment of expiry of an endpoint that was deployed or extended at `start`."""
        if self.after is not None:
            return start + self.after
        if self.at is None:
            raise ValueError("an expiry has either a length or a moment")
        return self.at


def read_expiry(text: str) -> Expiry:
    """Return the expiry that a value of `expires` states; a date means the end of that day in UTC.

    Raises:
        InvalidValueError: the text is none of the allowed forms, has no time zone, or is out of range.
    """
    if found := _LENGTH.fullmatch(text):
        length = int(found[1]) * _UNITS[found[2]]
        if not SHORTEST <= length <= LONGEST:
            allowed = f"{SHORTEST.seconds // 60}m to {LONGEST.days}d"
            refuse("value-not-allowed", f"got {text!r}", allowed=allowed, fix="choose a length between")
        return Expiry(after=length)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        refuse("value-not-allowed", f"got {text!r}", allowed=ALLOWED_EXPIRES, fix="write it as one of these")
    if _DAY.fullmatch(text):
        return Expiry(at=moment.replace(tzinfo=dt.UTC) + dt.timedelta(days=1))
    if moment.tzinfo is None:
        fix = f"add the zone, such as {text}Z or {text}+09:00"
        refuse("zone-missing", f"got {text!r}", allowed=ALLOWED_EXPIRES, fix=fix)
    return Expiry(at=moment.astimezone(dt.UTC).replace(microsecond=0))


def is_past(stated: str, now: dt.datetime) -> bool:
    """Return True if a value of `expires` is a date or timestamp in the past; a duration is never past."""
    moment = read_expiry(stated).at
    return moment is not None and moment <= now


def _from_yaml(value: object) -> object:
    """Return a date or timestamp, which YAML reads as a date object, as text; other values unchanged."""
    return value.isoformat() if isinstance(value, dt.date) else value


def _check(text: str) -> str:
    read_expiry(text)
    return text


Expires = Annotated[str, BeforeValidator(_from_yaml), AfterValidator(_check)]
