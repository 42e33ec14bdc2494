"""How an update moves calls to new instances, and what takes it back (SageMaker's deployment guardrails).

Limits: SageMaker API reference, DeploymentConfig; developer guide, "Deployment guardrails for updating models in
production".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field

from cohost.catalog.sections.settings import Settings
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.catalog.models import Catalog
    from cohost.catalog.yaml_source import Location

ROLLBACK_ALARMS: Final = ("server_errors_percent", "model_errors_percent", "model_latency_p99_ms")
"""What a bad model shows in within minutes. Other alarms are slow, or would be there before the deployment."""

MOST_PERCENT: Final = 50
SIZES: Final = {"canary": "canary_size", "linear": "linear_step_size", "rolling": "maximum_batch_size"}

_SIZE: Final = "a number of instances such as 1, or a share such as 25%, up to half of the instances"
_PERCENT: Final = re.compile(r"([1-9]\d?)%")


def _check_size(size: int | str) -> int | str:
    percent = _PERCENT.fullmatch(size) if isinstance(size, str) else None
    if (percent is None and isinstance(size, str)) or (percent and int(percent[1]) > MOST_PERCENT):
        msg = f"{size!r} is not allowed; allowed: {_SIZE}; fix: write a number, or 1% to {MOST_PERCENT}%"
        raise ValueError(msg)
    return size


Size = Annotated[Annotated[int, Field(ge=1, le=50)] | str, AfterValidator(_check_size)]
Wait = Annotated[int, Field(ge=0, le=3600)]


class Guardrails(Settings):
    """One way of updating the endpoint.

    Attributes:
        strategy: all calls at once, a first part and then the rest, equal parts, or batches of instances.
        canary_size: the first part, with strategy canary.
        linear_step_size: each part, with strategy linear.
        maximum_batch_size: each batch, with strategy rolling.
        wait_interval_in_seconds: between parts or batches, in which the alarms are watched.
        termination_wait_in_seconds: how long the old instances are kept after all calls have moved; the alarms are
            watched until then. Not with strategy rolling.
        maximum_execution_timeout_in_seconds: after which the update is taken back. None: SageMaker's own.
        rollback_alarms: true for the stack's own alarms of errors and latency, false for none, or names of alarms.
    """

    strategy: Literal["all-at-once", "canary", "linear", "rolling"] = Field(
        default="all-at-once", description="all-at-once, canary, linear or rolling"
    )
    canary_size: Size | None = Field(default=None, description=_SIZE)
    linear_step_size: Size | None = Field(default=None, description=_SIZE)
    maximum_batch_size: Size | None = Field(default=None, description=_SIZE)
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
        """The size that the strategy goes by; None with all-at-once."""
        found: int | str | None = getattr(self, SIZES[self.strategy]) if self.strategy in SIZES else None
        return found


def size_of(size: int | str) -> tuple[str, int]:
    """A size as SageMaker's CapacitySize: its Type and its Value."""
    if isinstance(size, int):
        return "INSTANCE_COUNT", size
    return "CAPACITY_PERCENT", int(size.removesuffix("%"))


def deployment_faults(catalog: Catalog) -> Iterator[tuple[Location, str]]:
    """Yield what does not go together: sizes and strategy, parts and instances, alarms that are switched off."""
    guardrails = catalog.deployment
    if guardrails is None:
        return
    if catalog.endpoint.topology == SCALE_TO_ZERO:
        text = (
            f"deployment with topology {SCALE_TO_ZERO} would do nothing; allowed: with topology multi-model only; a "
            "component is updated copy by copy, and keeps its old copies where a new one does not come up; "
            "fix: take it out"
        )
        yield ("deployment",), text
        return
    yield from _size_faults(guardrails, catalog.endpoint.initial_instance_count)
    yield from _timeout_faults(guardrails)
    if guardrails.rollback_alarms is True and not any(
        getattr(catalog.monitoring.alarms, key) for key in ROLLBACK_ALARMS
    ):
        text = (
            "true without an alarm of errors or latency; allowed: true where one of "
            f"monitoring.alarms.{', '.join(ROLLBACK_ALARMS)} is on; fix: write `monitoring: {{}}`, which switches all "
            "on, or rollback_alarms: false"
        )
        yield ("deployment", "rollback_alarms"), text


def _size_faults(guardrails: Guardrails, instances: int) -> Iterator[tuple[Location, str]]:
    strategy, needed = guardrails.strategy, SIZES.get(guardrails.strategy)
    for key in SIZES.values():
        if key != needed and getattr(guardrails, key) is not None:
            text = f"{key} with strategy {strategy} would do nothing; allowed: {needed or 'no size'}; fix: take it out"
            yield ("deployment", key), text
    if needed is None:
        return
    if (size := guardrails.size) is None:
        yield ("deployment",), f"{needed} is missing with strategy {strategy}; allowed: {_SIZE}; fix: {needed}: 1"
        return
    if instances == 1:
        text = (
            f"strategy {strategy} moves calls by at most half of the instances, and there is 1; allowed: with "
            "endpoint.initial_instance_count: 2 or more; fix: write strategy: all-at-once, whose old instance waits "
            "for termination_wait_in_seconds and takes the calls back"
        )
        yield ("deployment", "strategy"), text
    elif isinstance(size, int) and size * 2 > instances:
        text = f"{size} of {instances} instances; allowed: up to {instances // 2}; fix: {needed}: {instances // 2}"
        yield ("deployment", needed), text


def _timeout_faults(guardrails: Guardrails) -> Iterator[tuple[Location, str]]:
    """Yield waits that nothing reads, and a time limit that is over before they are."""
    waits = ["wait_interval_in_seconds"] if guardrails.strategy in SIZES else []
    waits += ["termination_wait_in_seconds"] if guardrails.strategy != "rolling" else []
    for key in ("wait_interval_in_seconds", "termination_wait_in_seconds"):
        if key in guardrails.model_fields_set and key not in waits:
            text = f"{key} with strategy {guardrails.strategy} would do nothing; allowed: {waits[0]}; fix: take it out"
            yield ("deployment", key), text
    timeout, waited = guardrails.maximum_execution_timeout_in_seconds, sum(getattr(guardrails, key) for key in waits)
    if timeout is not None and timeout <= waited:
        text = f"{timeout} s end before the waits of {waited} s; allowed: more than {waited}; fix: a longer time"
        yield ("deployment", "maximum_execution_timeout_in_seconds"), text
