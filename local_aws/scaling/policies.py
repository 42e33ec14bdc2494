"""What scaling policies do when alarms tell them to act.

Rules: Application Auto Scaling user guide, "Step scaling policies" and "Target tracking scaling policies", how they
work and their cooldowns; PutScalingPolicy of the API reference for several policies at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from local_aws.scaling.records import Rest
from local_aws.scaling.steps import stepped_capacity
from local_aws.scaling.tracking import wanted_capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from local_aws.scaling.alarms import Alarms, Trigger
    from local_aws.scaling.clock import Clock
    from local_aws.scaling.records import Policy, Registry, Target
    from local_aws.scaling.scaler import Scaler

# For SageMaker's variants and components, of either kind of policy (API reference).
_DEFAULT_COOLDOWN_S: Final = 300


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The capacity that a policy asks for, and what made it ask."""

    wanted: int
    policy: Policy
    cause: str


class Policies:
    """Turns triggers of alarms into changes of capacities."""

    def __init__(self, registry: Registry, alarms: Alarms, scaler: Scaler, clock: Clock) -> None:
        self._registry = registry
        self._alarms = alarms
        self._scaler = scaler
        self._clock = clock

    async def act(self, triggers: Iterable[Trigger]) -> None:
        """Act on what alarms said at one time; of several proposals for a target the largest capacity wins."""
        by_target: dict[int, tuple[Target, list[tuple[Policy, Trigger]]]] = {}
        for trigger in triggers:
            if (found := self._registry.of_action(trigger.action)) is not None:
                target, policy = found
                by_target.setdefault(id(target), (target, []))[1].append((policy, trigger))
        for target, told in by_target.values():
            # What cannot be done now is asked for again, as long as the alarm lasts.
            if target.under_way is None:
                await self._decide(target, told)

    async def _decide(self, target: Target, told: Sequence[tuple[Policy, Trigger]]) -> None:
        found = await self._scaler.capacity(target)
        if found is None or target.under_way is not None:
            return
        current = found.count
        target.notice(current, self._clock.now())
        proposals = [self._proposal(target, policy, trigger, current) for policy, trigger in told]
        largest = max(filter(None, proposals), key=lambda proposal: proposal.wanted, default=None)
        if largest is not None:
            self._begin(target, largest, current)

    def _proposal(self, target: Target, policy: Policy, trigger: Trigger, current: int) -> Proposal | None:
        wish = functools.partial(self._wish, target, policy, trigger)
        wanted = self._after_cooldowns(target, current, wish)
        if wanted is None or wanted == current:
            return None
        if wanted < current and not self._is_founded(target, trigger):
            return None
        side = "DynamicScalingOutSuspended" if wanted > current else "DynamicScalingInSuspended"
        if target.suspended.get(side):
            return None
        cause = f"monitor alarm {trigger.alarm.name} in state {trigger.alarm.state} triggered policy {policy.name}"
        return Proposal(wanted=wanted, policy=policy, cause=cause)

    def _after_cooldowns(self, target: Target, current: int, wish: Callable[[int], int | None]) -> int | None:
        """What is wanted, with regard to the cooldowns; None for nothing.

        While the one of growing lasts, what was added counts as part of what is wanted now; while the one of
        shrinking lasts nothing shrinks, but it may grow.
        """
        now = self._clock.now()
        growing = now < target.rest_out.until
        wanted = wish(current)
        if wanted is not None and wanted > current and growing:
            wanted = wish(target.rest_out.before)
            if wanted is None or wanted <= current:
                return None
        if wanted is not None and wanted < current and now < target.rest_in.until:
            return None
        return wanted

    def _wish(self, target: Target, policy: Policy, trigger: Trigger, base: int) -> int | None:
        wanted = self._tracked(target, policy, trigger, base) if policy.tracks else _stepped(policy, trigger, base)
        return None if wanted is None else target.within(wanted)

    def _tracked(self, target: Target, policy: Policy, trigger: Trigger, base: int) -> int | None:
        if base == 0 or not trigger.values:
            return None
        wanted = wanted_capacity(base, trigger.values[-1], policy.configuration["TargetValue"])
        high, low = policy.alarms
        if trigger.alarm.name == high:
            return max(wanted, base)
        if trigger.alarm.name == low and policy.scales_in and self._all_low(target):
            return min(wanted, base)
        return None

    def _is_founded(self, target: Target, trigger: Trigger) -> bool:
        """Whether what an alarm says of too much capacity is said of the capacity that there is.

        What was before a time at zero is not. On the service starting takes so long that it is no longer looked at;
        here a second is enough, and what has just been woken would be put to sleep again.
        """
        alarm = trigger.alarm
        return self._clock.now() >= target.woken + alarm.rule.periods * alarm.period

    def _all_low(self, target: Target) -> bool:
        """Whether every tracking policy that may scale in is ready to (user guide: "Multiple target tracking")."""
        lows = [policy.alarms[1] for policy in target.policies.values() if policy.tracks and policy.scales_in]
        return len(self._alarms.in_alarm(lows)) == len(lows)

    def _begin(self, target: Target, proposal: Proposal, current: int) -> None:
        self._scaler.begin(
            target,
            proposal.wanted,
            proposal.cause,
            done=lambda: self._rest(target, proposal, current),
        )

    def _rest(self, target: Target, proposal: Proposal, before: int) -> None:
        """Begin the cooldown; growing ends that of shrinking."""
        target.notice(before, self._clock.now())
        target.notice(proposal.wanted, self._clock.now())
        out, configuration = proposal.wanted > before, proposal.policy.configuration
        name = ("ScaleOutCooldown" if out else "ScaleInCooldown") if proposal.policy.tracks else "Cooldown"
        rest = Rest(until=self._clock.now() + configuration.get(name, _DEFAULT_COOLDOWN_S), before=before)
        if out:
            target.rest_out, target.rest_in = rest, Rest()
        else:
            target.rest_in = rest


def _stepped(policy: Policy, trigger: Trigger, base: int) -> int | None:
    """What a step policy asks for. Without a single value the difference is taken as none (inferred)."""
    values, rule = trigger.values, trigger.alarm.rule
    aggregated = {
        "Minimum": min(values, default=rule.threshold),
        "Maximum": max(values, default=rule.threshold),
        "Average": sum(values) / len(values) if values else rule.threshold,
    }[policy.configuration.get("MetricAggregationType", "Average")]
    above = rule.comparison.startswith("Greater")
    return stepped_capacity(policy.configuration, base, difference=aggregated - rule.threshold, above=above)
