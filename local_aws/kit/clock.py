"""The emulation's clock: the machine's own, or a faster one, so that a test's minute is a second.

Periods, cooldowns, idle times and schedules use it, and their expressions are checked here. The times in answers
(activities, alarms) are the machine's.
"""

from __future__ import annotations

import bisect
import json
import time
import zoneinfo
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response

from cohost.endpoint.schedules import check_expression
from cohost.errors import LocalError
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request


PATH: Final = "/_cohost/clock"
# More makes a minute shorter than the calls that evaluating it takes.
_FASTEST: Final = 3600
_EXAMPLE: Final = 'send {"speed": 60}'


class Clock:
    """Seconds since 1970, `speed` of them a second of this machine; the two agree at the start.

    Args:
        speed: more than 0, at most 3600.
        machine: the machine's clock.

    Raises:
        LocalError: the speed is none.
    """

    def __init__(self, speed: float = 1, machine: Callable[[], float] = time.time) -> None:
        self._machine = machine
        now = machine()
        # Where each stretch of one speed begins: the machine's time, the clock's time, the speed.
        self._stretches = [(now, now, _checked(speed))]
        self._listeners: list[Callable[[], None]] = []

    @property
    def speed(self) -> float:
        """Its speed as a multiple of the machine's clock."""
        return self._stretches[-1][2]

    def set_speed(self, speed: float) -> None:
        """Run at another speed from now on; its time does not jump. Raises as the constructor does."""
        checked, machine = _checked(speed), self._machine()
        self._stretches.append((machine, self.at(machine), checked))
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have something called when the speed has changed."""
        self._listeners.append(listener)

    def now(self) -> float:
        """Return the clock's time."""
        return self.at(self._machine())

    def at(self, machine: float) -> float:
        """Return this clock's time at a time of the machine's, past or to come."""
        index = bisect.bisect_right(self._stretches, machine, key=lambda stretch: stretch[0]) - 1
        if index < 0:
            return machine
        began, showed, speed = self._stretches[index]
        return showed + (machine - began) * speed

    def real(self, seconds: float) -> float:
        """Convert a length of time to seconds of the machine."""
        return seconds / self.speed

    async def answer(self, request: Request) -> Response:
        """Answer the page `/_cohost/clock`: GET answers with speed and time, PUT of `{"speed": n}` sets the speed."""
        if request.method == "PUT":
            try:
                self.set_speed(_wanted(await request.body()))
            except LocalError as fault:
                return JSONResponse({"message": str(fault)}, HTTPStatus.BAD_REQUEST)
        return JSONResponse({"speed": self.speed, "now": self.now()})


def _wanted(body: bytes) -> Any:
    try:
        members = json.loads(body)
    except ValueError:
        raise LocalError("clock-body-wrong", "body", "is not JSON", fix=_EXAMPLE) from None
    if not isinstance(members, dict) or members.keys() != {"speed"}:
        raise LocalError("clock-body-wrong", "body", "has other keys", allowed="speed", fix=_EXAMPLE)
    return members["speed"]


def _checked(speed: Any) -> float:
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed <= _FASTEST:
        raise LocalError(
            "clock-speed-wrong",
            "speed",
            f"got {speed!r}",
            allowed=f"more than 0, up to {_FASTEST}",
            fix="choose one of these; 1 is real time",
        )
    return float(speed)


def check_schedule(expression: str, timezone: str) -> None:
    """Check the expression and the time zone of a schedule or scheduled action.

    Raises:
        ValidationException: the services would reject one of them.
    """
    try:
        check_expression(expression)
        zoneinfo.ZoneInfo(timezone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as fault:
        raise ValidationException(f"Schedule {expression} in {timezone}: {fault}") from None
