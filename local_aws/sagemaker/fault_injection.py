"""`/_cohost/faults`: fault injection, for tests of the callers of endpoints. Not part of SageMaker.

`PUT` accepts a JSON object and returns the whole state; switches that are left out are not changed:
- `throttled_calls`: this number of next calls get ThrottlingException, status 400 with an empty message, as the service
  sends it (opensearch-project/ml-commons#2429, aws-samples/amazon-sagemaker-nlu-search#4);
- `unavailable_calls`: this number of calls after those get ServiceUnavailable, status 503;
- `model_load_delay_s`: seconds that every load of a multi-model container's model takes longer, inside its time limits;
- `container_start_delay_s`: seconds that every start of a container takes longer, a component's copies included;
- `ping_interval_s`, `ping_failures`, `replacement_delay_s`: seconds between the pings of a container, pings that fail
  in a row before it gets no calls any more, and seconds from then until another container starts in its place;
- `worker_fault`: a fault that is injected into one worker process at once (local_aws/sagemaker/debug/pages.py).
`GET` returns the state, `DELETE` ends all faults: each switch is reset to its value at the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

from local_aws.sagemaker import errors

if TYPE_CHECKING:
    from local_aws.sagemaker.settings import Settings


PATH: Final = "/_cohost/faults"


class SwitchError(ValueError):
    """A request names a switch that does not exist, or an invalid value; the text contains the fix."""


@dataclass(kw_only=True)
class FaultSwitches:
    """The faults that are on, and how the health of containers is judged. Counts go down with the calls they hit."""

    throttled_calls: int = 0
    unavailable_calls: int = 0
    model_load_delay_s: float = 0
    container_start_delay_s: float = 0
    ping_interval_s: float
    ping_failures: int
    replacement_delay_s: float

    def __post_init__(self) -> None:
        """Remember the values that `clear` restores."""
        self._initial = self.state()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make the switches with no fault on, and the settings' judgement of health."""
        return cls(
            ping_interval_s=settings.ping_interval_s,
            ping_failures=settings.ping_failures,
            replacement_delay_s=settings.replacement_delay_s,
        )

    def state(self) -> dict[str, Any]:
        """Return each switch's value by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check_call(self) -> None:
        """Count a call.

        Raises:
            ThrottlingException: the call is one of those to be throttled.
            ServiceUnavailable: it is one of those to find no instance.
        """
        if self.throttled_calls > 0:
            self.throttled_calls -= 1
            raise errors.throttled()
        if self.unavailable_calls > 0:
            self.unavailable_calls -= 1
            raise errors.unavailable_on_request()

    @staticmethod
    def check(wanted: object) -> dict[str, Any]:
        """Read the values of a request.

        Raises:
            SwitchError: a name or a value is wrong.
        """
        if not isinstance(wanted, dict):
            raise SwitchError("the body is not a JSON object; allowed: an object of switches; fix: send one")
        known = [field.name for field in fields(FaultSwitches)]
        for name, value in wanted.items():
            if name not in known:
                raise SwitchError(
                    f"{name}: no such switch; allowed: {', '.join(known)}, worker_fault; fix: name one of these"
                )
            _check(name, value)
        return wanted

    def set(self, checked: dict[str, Any]) -> None:
        """Set values that `check` has read."""
        for name, value in checked.items():
            setattr(self, name, value)

    def clear(self) -> None:
        """End all faults, and judge the health of containers as at the start again."""
        self.set(self._initial)


def _check(name: str, value: object) -> None:
    whole = not name.endswith("_s")
    # SageMaker always pings a container, and never gives it up before the first ping.
    least = {"ping_failures": 1, "ping_interval_s": 0.01}.get(name, 0)
    if not _is_number(value, least, whole=whole):
        what = "a whole number" if whole else "a number of seconds"
        raise SwitchError(f"{name}: {value!r} is none; allowed: {what} of {least} or more; fix: send one")


def _is_number(value: object, least: float, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return least <= value < math.inf
