"""What Application Auto Scaling holds: scalable targets, their policies and scheduled actions, and what was done.

ARNs have the forms of AWS's service authorization reference and of the examples in its user guide.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local_aws.autoscaling.errors import ObjectNotFoundException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local_aws.autoscaling.targets import Scalable


_ACTIVITIES_KEPT = 1000
_CREATED_BY = ":createdBy/"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True)
class Policy:
    """A scaling policy; `configuration` is that of its type, `alarms` those that the service made for it."""

    name: str
    arn: str
    type: str
    configuration: Mapping[str, Any]
    alarms: tuple[str, ...] = ()
    created: datetime = field(default_factory=_now)

    @property
    def tracks(self) -> bool:
        """Whether it is a target tracking policy."""
        return self.type == "TargetTrackingScaling"

    @property
    def scales_in(self) -> bool:
        """Whether it may take capacity away."""
        return not self.configuration.get("DisableScaleIn", False)

    @property
    def action(self) -> str:
        """What an alarm of its own has as its action."""
        return f"{self.arn}{_CREATED_BY}{uuid.uuid4()}"


@dataclass(kw_only=True)
class ScheduledAction:
    """New bounds at certain times.

    `definition` is the request that made it, `began` the clock's time then, `due` the clock's time at which it is due
    next, None for never.
    """

    name: str
    arn: str
    definition: Mapping[str, Any]
    began: float
    due: float | None = None
    created: datetime = field(default_factory=_now)


@dataclass(kw_only=True)
class Activity:
    """One attempt at changing a capacity."""

    scalable: Scalable
    description: str
    cause: str
    status: str = "InProgress"
    message: str = ""
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: datetime = field(default_factory=_now)
    ended: datetime | None = None

    def end(self, status: str, message: str) -> None:
        """Note how it ended."""
        self.status, self.message, self.ended = status, message, _now()


@dataclass(kw_only=True)
class Rest:
    """A cooldown: until when, and the capacity before the change that began it."""

    until: float = 0.0
    before: int = 0


@dataclass(kw_only=True)
class Target:
    """A scalable target.

    `rest_out` and `rest_in` are the cooldowns of its last changes in either direction, `seen` is the capacity that was
    seen last and `woken` the clock's time at which it was first seen above zero. `outside` tells that its
    capacity was outside of its bounds when it was last looked at, `occasion` what set the bounds, for texts: a
    sentence's beginning, "" for a request.
    """

    scalable: Scalable
    arn: str
    minimum: int
    maximum: int
    role_arn: str
    suspended: dict[str, bool]
    tags: dict[str, str]
    policies: dict[str, Policy] = field(default_factory=dict)
    actions: dict[str, ScheduledAction] = field(default_factory=dict)
    under_way: Activity | None = None
    outside: bool = False
    occasion: str = ""
    rest_out: Rest = field(default_factory=Rest)
    rest_in: Rest = field(default_factory=Rest)
    seen: int | None = None
    woken: float = 0.0
    created: datetime = field(default_factory=_now)

    def notice(self, capacity: int, now: float) -> None:
        """Note the capacity that there is."""
        if self.seen == 0 and capacity > 0:
            self.woken = now
        self.seen = capacity

    def within(self, capacity: int) -> int:
        """The capacity, brought into the target's bounds."""
        return min(max(capacity, self.minimum), self.maximum)

    def policy(self, name: str) -> Policy:
        """The policy of that name.

        Raises:
            ObjectNotFoundException: there is none.
        """
        if (policy := self.policies.get(name)) is None:
            raise ObjectNotFoundException(f"No scaling policy found for {self.scalable.named}, policy name: {name}")
        return policy


class Registry:
    """All scalable targets of the account, and the activities of the last time, newest first."""

    def __init__(self) -> None:
        self._targets: dict[Scalable, Target] = {}
        self.activities: deque[Activity] = deque(maxlen=_ACTIVITIES_KEPT)

    def __iter__(self) -> Iterator[Target]:
        """All targets, as they are now."""
        return iter(list(self._targets.values()))

    def find(self, scalable: Scalable) -> Target | None:
        """The target of a resource; None if it is not registered."""
        return self._targets.get(scalable)

    def get(self, scalable: Scalable) -> Target:
        """The target of a resource.

        Raises:
            ObjectNotFoundException: it is not registered.
        """
        if (target := self._targets.get(scalable)) is None:
            raise ObjectNotFoundException(f"No scalable target found for {scalable.named}")
        return target

    def add(self, target: Target) -> None:
        """Take in a target."""
        self._targets[target.scalable] = target

    def remove(self, target: Target) -> None:
        """Forget a target with its policies and scheduled actions."""
        self._targets.pop(target.scalable, None)

    def holds(self, target: Target) -> bool:
        """Whether the target is still registered."""
        return self._targets.get(target.scalable) is target

    def of_action(self, action: str) -> tuple[Target, Policy] | None:
        """The policy that an alarm's action names; None for any other action, and for a policy that is gone."""
        arn = action.partition(_CREATED_BY)[0]
        for target in self:
            for policy in target.policies.values():
                if policy.arn == arn:
                    return target, policy
        return None
