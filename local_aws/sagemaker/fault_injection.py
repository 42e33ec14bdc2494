"""`/_cohost/faults`: fault injection, for tests of programs that call endpoints. SageMaker has no such page.

`PUT` accepts a JSON object of fault switches and returns the values of all switches; switches that the object leaves
out are not changed:
- `throttled_calls`: this number of next calls get ThrottlingException, status 400 with an empty message, as SageMaker
  sends it (opensearch-project/ml-commons#2429, aws-samples/amazon-sagemaker-nlu-search#4);
- `unavailable_calls`: this number of calls after the throttled ones get ServiceUnavailable, status 503;
- `model_load_delay_s`: seconds that every load of a model in a multi-model container takes longer; they count towards
  the time limits of a load;
- `container_start_delay_s`: seconds that every start of a container takes longer, a component's copies included;
- `ping_interval_s`, `ping_failures`, `replacement_delay_s`: seconds between two pings of a container, number of pings
  that fail in a row before the container gets no more calls, and seconds from then until another container starts in
  its place;
- `worker_fault`: a fault that is injected into one worker process at once (local_aws/sagemaker/debug/pages.py).
`GET` returns the value of every switch. `DELETE` ends all faults: each switch is reset to its value at the start.
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
    """A request names an unknown fault switch, or gives one an invalid value; the error's text contains the fix."""


@dataclass(kw_only=True)
class FaultSwitches:
    """The fault switches of SageMaker; each call that gets a fault lowers that fault's count of calls by one."""

    throttled_calls: int = 0
    unavailable_calls: int = 0
    model_load_delay_s: float = 0
    container_start_delay_s: float = 0
    ping_interval_s: float
    ping_failures: int
    replacement_delay_s: float

    def __post_init__(self) -> None:
        """Remember the initial values of the switches, which `clear` restores."""
        self._initial = self.state()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make switches with no fault; the times and the number of pings are those of the settings."""
        return cls(
            ping_interval_s=settings.ping_interval_s,
            ping_failures=settings.ping_failures,
            replacement_delay_s=settings.replacement_delay_s,
        )

    def state(self) -> dict[str, Any]:
        """Return the value of each switch by the switch's name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check_call(self) -> None:
        """Count a call of InvokeEndpoint against the switches `throttled_calls` and `unavailable_calls`.

        Raises:
            ThrottlingException: the call counted against `throttled_calls`.
            ServiceUnavailable: the call counted against `unavailable_calls`.
        """
        if self.throttled_calls > 0:
            self.throttled_calls -= 1
            raise errors.throttled()
        if self.unavailable_calls > 0:
            self.unavailable_calls -= 1
            raise errors.unavailable_on_request()

    @staticmethod
    def check(wanted: object) -> dict[str, Any]:
        """Check the JSON value of a PUT and return its switches, each with its new value.

        Raises:
            SwitchError: the value is no object, names a switch that does not exist, or has an invalid value for one.
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
        """Set the switches to values that `check` has returned."""
        for name, value in checked.items():
            setattr(self, name, value)

    def clear(self) -> None:
        """End all faults: reset each switch to its value at the start."""
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
