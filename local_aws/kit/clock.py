"""The emulator's clock, which can run faster than real time, so that a minute passes in a second of a test.

Alarm periods, cooldowns, idle times and schedules use this clock. Times in answers, such as those of scaling activities
and alarms, are times of the machine's clock. The module also checks schedule expressions.
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
# At a higher speed, a minute of the clock is shorter than the calls that evaluate alarms each minute.
_FASTEST: Final = 3600
_EXAMPLE: Final = 'send {"speed": 60}'


class Clock:
    """The emulator's clock, in seconds since 1970; it advances by `speed` seconds in one second of the machine's clock.

    When a `Clock` is created, it shows the same time as the machine's clock.

    Args:
        speed: more than 0, at most 3600.
        machine: returns the machine's time, in seconds since 1970.

    Raises:
        LocalError: the speed is not a number in this range.
    """

    def __init__(self, speed: float = 1, machine: Callable[[], float] = time.time) -> None:
        self._machine = machine
        now = machine()
        # Where each stretch of one speed begins: the machine's time, the clock's time, the speed.
        self._stretches = [(now, now, _checked(speed))]
        self._listeners: list[Callable[[], None]] = []

    @property
    def speed(self) -> float:
        """The clock's speed as a multiple of the machine's clock."""
        return self._stretches[-1][2]

    def set_speed(self, speed: float) -> None:
        """Change the clock's speed without a jump of its time; raise LocalError for a speed out of range."""
        checked, machine = _checked(speed), self._machine()
        self._stretches.append((machine, self.at(machine), checked))
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Register a function that is called whenever the clock's speed has changed."""
        self._listeners.append(listener)

    def now(self) -> float:
        """Return the clock's time, in seconds since 1970."""
        return self.at(self._machine())

    def at(self, machine: float) -> float:
        """Convert a time of the machine's clock, past or future, to this clock's time; both are seconds since 1970."""
        index = bisect.bisect_right(self._stretches, machine, key=lambda stretch: stretch[0]) - 1
        if index < 0:
            return machine
        began, showed, speed = self._stretches[index]
        return showed + (machine - began) * speed

    def real(self, seconds: float) -> float:
        """Convert a duration in seconds of this clock to seconds of the machine's clock."""
        return seconds / self.speed

    async def answer(self, request: Request) -> Response:
        """Answer a request for `/_cohost/clock`: GET returns speed and time, PUT of `{"speed": n}` sets the speed."""
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
    """Check the expression and the time zone of an EventBridge schedule or of a scheduled action.

    Raises:
        ValidationException: the expression or the time zone is one that the service would reject.
    """
    try:
        check_expression(expression)
        zoneinfo.ZoneInfo(timezone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as fault:
        raise ValidationException(f"Schedule {expression} in {timezone}: {fault}") from None
