"""The catalog's section `scaling`: bounds, target tracking, idle time and schedule, for either topology.

Topology multi-model scales instances; topology scale-to-zero scales copies of its only inference component. The limits
are those of Application Auto Scaling and CloudWatch (API references: RegisterScalableTarget, PutScalingPolicy,
PutScheduledAction, PutMetricAlarm). Rules that span several values are in `cohost.catalog.checks`.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from cohost.catalog.sections.rules import Settings
from cohost.endpoint.schedules import ALLOWED_EXPRESSION, check_expression
from cohost.errors import refuse
from cohost.routing import MULTI_MODEL, SCALE_TO_ZERO

__all__ = ["MULTI_MODEL", "SCALE_TO_ZERO", "Metric", "Scaling", "ScheduledScaling", "with_topology_defaults"]

Metric = Literal["invocations", "concurrency"]

TRACKED_BY_DEFAULT: Final[Mapping[str, Mapping[str, Any]]] = {
    MULTI_MODEL: {"metric": "invocations", "target": 1000.0},
    SCALE_TO_ZERO: {"metric": "concurrency", "target": 4.0},
}
"""The default metric and target by topology, for a catalog that states neither.

AWS recommends InvocationsPerInstance for multi-model endpoints (SageMaker developer guide: multi-model endpoint auto
scaling policies), and no source has values of the metric `concurrency` for them. 1000 calls a minute are less than half
of the 39 calls a second that an ml.g5.xlarge answered with three encoders, as others published; half is AWS's initial
safety factor.
"""

_MOST: Final = 1000
_MINIMUM: Final = "0 to 1000; from 1 with topology multi-model"
_MAXIMUM: Final = "1 to 1000 instances or copies"


def _check_max(value: int) -> int:
    if not 1 <= value <= _MOST:
        fix = "set max to 1 or more; for zero cost while idle use topology: scale-to-zero with min: 0"
        refuse("value-not-allowed", f"got {value}", allowed=_MAXIMUM, fix=fix)
    return value


def _check_timezone(name: str) -> str:
    known = zoneinfo.available_timezones()
    # Without a time zone database on the machine, the name cannot be checked.
    if known and name not in known:
        allowed = "an IANA time zone such as Europe/Berlin or Asia/Seoul"
        refuse("value-not-allowed", f"got {name!r}", allowed=allowed, fix="write region/city as in the IANA list")
    return name


Minimum = Annotated[int, Field(ge=0, le=_MOST)]
Maximum = Annotated[int, AfterValidator(_check_max)]
Cooldown = Annotated[int, Field(ge=0, le=86_400)]


class ScheduledScaling(Settings):
    """One entry of `scaling.schedule`: bounds that apply from a point in time until another entry changes them.

    If the capacity is outside the new bounds, it is brought within them at once (AWS: Scheduled scaling).
    """

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", description="1 to 63 letters, digits, - and _, each name once"
    )
    cron: Annotated[str, AfterValidator(check_expression)] = Field(description=ALLOWED_EXPRESSION)
    timezone: Annotated[str, AfterValidator(_check_timezone)] = Field(
        default="UTC", description="an IANA time zone such as Europe/Berlin"
    )
    min: Minimum | None = Field(default=None, description=_MINIMUM)
    max: Maximum | None = Field(default=None, description=_MAXIMUM)

    @model_validator(mode="after")
    def _changes_something(self) -> ScheduledScaling:
        if self.min is None and self.max is None:
            refuse("field-missing", "has neither min nor max", allowed="one or both", fix="add the bound that changes")
        return self


class Scaling(Settings):
    """The catalog's section `scaling`: bounds of instances (multi-model) or copies (scale-to-zero), and policies."""

    min: Minimum = Field(description=_MINIMUM)
    max: Maximum = Field(description=_MAXIMUM)
    metric: Metric = Field(
        default=TRACKED_BY_DEFAULT[SCALE_TO_ZERO]["metric"], description="invocations or concurrency"
    )
    target: float = Field(
        default=TRACKED_BY_DEFAULT[SCALE_TO_ZERO]["target"],
        strict=False,
        description="a number of simultaneous calls (concurrency) or of calls per minute (invocations)",
    )
    scale_in_cooldown: Cooldown = Field(default=300, description="0 to 86400 seconds")
    scale_out_cooldown: Cooldown = Field(default=60, description="0 to 86400 seconds")
    idle_minutes: int | None = Field(default=None, ge=1, le=1440, description="1 to 1440 minutes")
    schedule: tuple[ScheduledScaling, ...] = Field(
        default=(), strict=False, description="a list of entries with name, cron, timezone, min, max"
    )

    @property
    def lowest(self) -> int:
        """Return the smallest lower bound of instances or copies, including those of the schedule."""
        return min([self.min, *(entry.min for entry in self.schedule if entry.min is not None)])

    @property
    def highest(self) -> int:
        """Return the largest upper bound of instances or copies, including those of the schedule."""
        return max([self.max, *(entry.max for entry in self.schedule if entry.max is not None)])

    @property
    def tracking_scales_in(self) -> bool:
        """Return True if target tracking removes instances or copies, and not only the setting `idle_minutes`.

        If `idle_minutes` is set and there is at most one copy, target tracking does not scale in: it could remove the
        copy before `idle_minutes` have passed.
        """
        return self.idle_minutes is None or self.highest > 1


def with_topology_defaults(data: Any) -> Any:  # the unchecked content of the file
    """Fill in a catalog's missing keys of `scaling` whose default depends on the topology, and return its data.

    With topology scale-to-zero the bounds are 0 and 1 copies by default. With topology multi-model target tracking has
    a default metric and target.
    """
    if not isinstance(data, Mapping):
        return data
    endpoint = data.get("endpoint")
    topology = endpoint.get("topology") if isinstance(endpoint, Mapping) else getattr(endpoint, "topology", None)
    scaling = data.get("scaling")
    if topology == SCALE_TO_ZERO and (scaling is None or isinstance(scaling, Mapping)):
        return {**data, "scaling": {"min": 0, "max": 1, **(scaling or {})}}
    if topology in {MULTI_MODEL, None} and isinstance(scaling, Mapping) and not {"metric", "target"} & scaling.keys():
        return {**data, "scaling": {**scaling, **TRACKED_BY_DEFAULT[MULTI_MODEL]}}
    return data
