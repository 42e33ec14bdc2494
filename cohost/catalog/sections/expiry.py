"""When an endpoint is to end: `expires` of the catalog, and what `cohost expire` takes.

A length of time (`8h`) is counted by whoever deploys; a day or a moment stands by itself. All moments are kept in UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from cohost.catalog.sections import rules
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.catalog.models import Catalog
    from cohost.catalog.yaml_source import Location

ALLOWED_EXPIRES: Final = (
    "8h, 90m or 7d; a day such as 2026-12-31; a moment with its zone such as 2026-12-31T18:00+09:00"
)
SHORTEST: Final = dt.timedelta(minutes=15)
"""An endpoint takes ten minutes to come up."""

LONGEST: Final = dt.timedelta(days=366)

_LENGTH: Final = re.compile(r"([1-9]\d{0,5})(m|h|d)")
_UNITS: Final = {"m": dt.timedelta(minutes=1), "h": dt.timedelta(hours=1), "d": dt.timedelta(days=1)}
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """When something ends. Exactly one is set: `after`, counted from a moment given later, or `at`, in UTC."""

    after: dt.timedelta | None = None
    at: dt.datetime | None = None

    def moment(self, start: dt.datetime) -> dt.datetime:
        """The end of what begins, or is prolonged, at `start`."""
        if self.after is not None:
            return start + self.after
        if self.at is None:
            raise ValueError("an expiry has either a length or a moment")
        return self.at


def read_expiry(text: str) -> Expiry:
    """What a text says of the end.

    A day ends when it is over in UTC.

    Raises:
        ValueError: it says nothing that can be read; the text says what is allowed, and the fix.
    """
    if found := _LENGTH.fullmatch(text):
        length = int(found[1]) * _UNITS[found[2]]
        if not SHORTEST <= length <= LONGEST:
            rules.refuse(repr(text), f"{SHORTEST.seconds // 60}m to {LONGEST.days}d", "choose a length between")
        return Expiry(after=length)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        rules.refuse(repr(text), ALLOWED_EXPIRES, "write it as one of these")
    if _DAY.fullmatch(text):
        return Expiry(at=moment.replace(tzinfo=dt.UTC) + dt.timedelta(days=1))
    if moment.tzinfo is None:
        rules.refuse(repr(text), ALLOWED_EXPIRES, f"say in which zone, e.g. {text}Z or {text}+09:00")
    return Expiry(at=moment.astimezone(dt.UTC).replace(microsecond=0))


def expiry_faults(catalog: Catalog) -> Iterator[tuple[Location, str]]:
    """Yield what keeps the endpoint from ending as stated: instances that stay although no copy is left."""
    scaling = catalog.scaling
    if catalog.expires is None or catalog.endpoint.topology != SCALE_TO_ZERO or scaling is None:
        return
    if scaling.lowest > 0:
        text = (
            f"expires with a least number of {scaling.lowest} copies would leave their instances billed; "
            "allowed: with scaling.min: 0 and no entry of scaling.schedule with another least; "
            "fix: write scaling.min: 0, or take expires out"
        )
        yield ("expires",), text


def is_past(stated: str, now: dt.datetime) -> bool:
    """Whether a moment of the catalog is over; a length of time never is."""
    moment = read_expiry(stated).at
    return moment is not None and moment <= now


def _from_yaml(value: object) -> object:
    """YAML reads what looks like a day or a moment itself; either is text again."""
    return value.isoformat() if isinstance(value, dt.date) else value


def _check(text: str) -> str:
    read_expiry(text)
    return text


Expires = Annotated[str, BeforeValidator(_from_yaml), AfterValidator(_check)]
