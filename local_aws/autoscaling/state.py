"""The state of Application Auto Scaling: scalable targets, their policies, scheduled actions and activities.

ARNs have the forms that the Service Authorization Reference and the user guide's examples show.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cohost.endpoint.scaling_rules import Cooldowns
from local_aws.autoscaling.errors import ObjectNotFoundException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local_aws.autoscaling.targets import ScalableResource


_ACTIVITIES_KEPT = 1000
_CREATED_BY = ":createdBy/"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True)
class Policy:
    """A scaling policy with its configuration; `alarms` has the names of the alarms that the service made for it."""

    name: str
    arn: str
    type: str
    configuration: Mapping[str, Any]
    alarms: tuple[str, ...] = ()
    created: datetime = field(default_factory=_now)

    @property
    def tracks(self) -> bool:
        """Return True if the policy is a target tracking policy."""
        return self.type == "TargetTrackingScaling"

    @property
    def scales_in(self) -> bool:
        """Return True if the policy is allowed to reduce the capacity."""
        return not self.configuration.get("DisableScaleIn", False)

    @property
    def action(self) -> str:
        """A new action ARN for an alarm that the service makes for the policy."""
        return f"{self.arn}{_CREATED_BY}{uuid.uuid4()}"


@dataclass(kw_only=True)
class ScheduledAction:
    """A scheduled action, which sets new bounds of its target at certain times.

    `definition` has the members of the last PutScheduledAction request, and `began` is the time of that request. `due`
    is the time of the next run, or None if no run follows. `began` and `due` are times of the emulator's clock in
    seconds.
    """

    name: str
    arn: str
    definition: Mapping[str, Any]
    began: float
    due: float | None = None
    created: datetime = field(default_factory=_now)


@dataclass(kw_only=True)
class Activity:
    """A scaling activity: one attempt to change the capacity of a resource."""

    resource: ScalableResource
    description: str
    cause: str
    status: str = "InProgress"
    message: str = ""
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: datetime = field(default_factory=_now)
    ended: datetime | None = None

    def end(self, status: str, message: str) -> None:
        """Record the end of the activity."""
        self.status, self.message, self.ended = status, message, _now()


@dataclass(kw_only=True)
class ScalableTarget:
    """A resource that is registered to be scaled.

    Args:
        resource: the resource.
        arn: the target's ARN.
        minimum: the smallest capacity, MinCapacity.
        maximum: the largest capacity, MaxCapacity.
        role_arn: the role that the service would use on AWS.
        suspended: the kinds of scaling that are suspended, as SuspendedState has them.
        tags: the target's tags.
        policies: the target's scaling policies by name.
        actions: the target's scheduled actions by name.
        activity: the change of the capacity that is in progress; None without a change.
        outside: whether the capacity was outside of the bounds when the bounds were last checked.
        occasion: the event that set the bounds, as the beginning of a sentence; "" for RegisterScalableTarget.
        cooldowns: the cooldowns of the last changes by policies.
        seen: the capacity that was read last.
        above_zero_since: the clock's time in seconds at which the capacity last rose above zero.
        created: the time of the registration.
    """

    resource: ScalableResource
    arn: str
    minimum: int
    maximum: int
    role_arn: str
    suspended: dict[str, bool]
    tags: dict[str, str]
    policies: dict[str, Policy] = field(default_factory=dict)
    actions: dict[str, ScheduledAction] = field(default_factory=dict)
    activity: Activity | None = None
    outside: bool = False
    occasion: str = ""
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    seen: int | None = None
    above_zero_since: float = 0.0
    created: datetime = field(default_factory=_now)

    def note_capacity(self, capacity: int, now: float) -> None:
        """Record the capacity that was read at the clock's time `now`."""
        if self.seen == 0 and capacity > 0:
            self.above_zero_since = now
        self.seen = capacity

    def within(self, capacity: int) -> int:
        """Return the capacity within the target's bounds that is nearest to the given capacity."""
        return min(max(capacity, self.minimum), self.maximum)

    def policy(self, name: str) -> Policy:
        """Return the target's policy with the given name.

        Raises:
            ObjectNotFoundException: the target has no such policy.
        """
        if (policy := self.policies.get(name)) is None:
            raise ObjectNotFoundException(f"No scaling policy found for {self.resource.named}, policy name: {name}")
        return policy


class ScalableTargets:
    """All scalable targets of the account, and the latest activities, newest first."""

    def __init__(self) -> None:
        self._targets: dict[ScalableResource, ScalableTarget] = {}
        self.activities: deque[Activity] = deque(maxlen=_ACTIVITIES_KEPT)

    def __iter__(self) -> Iterator[ScalableTarget]:
        """Iterate over a snapshot of the targets, so that targets may be added and removed during the loop."""
        return iter(list(self._targets.values()))

    def find(self, resource: ScalableResource) -> ScalableTarget | None:
        """Return the scalable target of a resource; None if the resource is not registered."""
        return self._targets.get(resource)

    def get(self, resource: ScalableResource) -> ScalableTarget:
        """Return the target of a resource.

        Raises:
            ObjectNotFoundException: the resource is not registered.
        """
        if (target := self._targets.get(resource)) is None:
            raise ObjectNotFoundException(f"No scalable target found for {resource.named}")
        return target

    def add(self, target: ScalableTarget) -> None:
        """Add a target."""
        self._targets[target.resource] = target

    def remove(self, target: ScalableTarget) -> None:
        """Remove a target with its policies and scheduled actions."""
        self._targets.pop(target.resource, None)

    def holds(self, target: ScalableTarget) -> bool:
        """Return True if the target is still registered."""
        return self._targets.get(target.resource) is target

    def of_action(self, action: str) -> tuple[ScalableTarget, Policy] | None:
        """Return the scalable target and the policy that an alarm's action names; None if it names no policy."""
        arn = action.partition(_CREATED_BY)[0]
        for target in self:
            for policy in target.policies.values():
                if policy.arn == arn:
                    return target, policy
        return None
