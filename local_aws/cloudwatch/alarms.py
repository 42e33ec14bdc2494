"""Evaluates CloudWatch's alarms and does what they ask for. moto keeps them; their states are set by SetAlarmState."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from local_aws.cloudwatch.evaluation import Judged, judge, read
from local_aws.cloudwatch.expressions import NotEmulated
from local_aws.cloudwatch.notifications import message, reason_data, reason_of, subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from local_aws.cloudwatch.evaluation import Alarm, State, Verdict
    from local_aws.cloudwatch.metric_store import History
    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock


_logger = logging.getLogger(__name__)

# What moto says of an alarm that was put and not set since.
_FRESH: Final = "Unchecked: Initial alarm creation"
# A scaling policy is told again and again while the state lasts (user guide: "Alarm actions").
_REPEAT_S: Final = 60
_SNS, _POLICY = ":sns:", ":scalingPolicy:"


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """An alarm that tells a scaling policy to act.

    `action` is what it names as such, `values` what it was judged by.
    """

    action: str
    alarm: Alarm
    values: Sequence[float]


class Alarms:
    """All metric alarms of the account.

    Args:
        history: the metrics.
        clock: what periods go by.
        account: for messages.
        front: leads to CloudWatch and SNS.
        wake: called when alarms have been changed, so that somebody calls `refresh`.
    """

    def __init__(
        self, history: History, clock: Clock, account: Account, front: ServiceClients, wake: Callable[[], None]
    ) -> None:
        self._history = history
        self._clock = clock
        self._account = account
        self._front = front
        self._wake = wake
        self._alarms: dict[str, Alarm] = {}
        self._set_by_hand: list[tuple[Alarm, State, str]] = []
        self._changed = False
        self._lock = asyncio.Lock()

    def mark_changed(self) -> None:
        """Have the alarms looked at anew before they are evaluated next."""
        self._changed = True
        self._wake()

    def state(self, name: str) -> State | None:
        """The state of an alarm; None if there is none of that name, or none that can be evaluated."""
        return None if (alarm := self._alarms.get(name)) is None else alarm.state

    def in_alarm(self, names: Iterable[str]) -> list[str]:
        """Those of the named alarms that are in the state ALARM."""
        return [name for name in names if self.state(name) == "ALARM"]

    def next_due(self) -> float | None:
        """When an alarm is to be evaluated next, by the clock; None without alarms."""
        if self._changed:
            return self._clock.now()
        return min(((alarm.evaluated + 1) * alarm.step for alarm in self._alarms.values()), default=None)

    async def refresh(self) -> None:
        """Take over what CloudWatch has, if something has changed."""
        async with self._lock:
            if not self._changed:
                return
            self._changed = False
            described = await self._front.run(self._describe)
            former, self._alarms = self._alarms, {}
            for one in described:
                await self._take_over(one, former.get(one["AlarmName"]))

    async def evaluate(self) -> list[Trigger]:
        """Evaluate what is due and send what is to be sent; the scaling policies that are to act."""
        async with self._lock:
            triggers = []
            for alarm, old, reason in self._set_by_hand:
                triggers += await self._enter(alarm, old, reason)
            self._set_by_hand.clear()
            now = self._clock.now()
            for alarm in list(self._alarms.values()):
                if (period := int(now // alarm.step)) > alarm.evaluated:
                    alarm.evaluated = period
                    triggers += await self._evaluate(alarm, float(period * alarm.step), now)
            return triggers

    def _describe(self) -> Sequence[Mapping[str, Any]]:
        pages = self._front.cloudwatch().get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"])
        return [alarm for page in pages for alarm in page.get("MetricAlarms", [])]

    async def _take_over(self, described: Mapping[str, Any], old: Alarm | None) -> None:
        fresh = described["StateReason"] == _FRESH
        try:
            alarm = read(described)
        except NotEmulated as fault:
            if fresh:
                await self._say(described["AlarmName"], "INSUFFICIENT_DATA", f"Not evaluated: {fault}", "{}")
            return
        self._alarms[alarm.name] = alarm
        if fresh:
            alarm.state = "INSUFFICIENT_DATA" if old is None else old.state
            await self._say(alarm.name, alarm.state, "Unchecked: the alarm was made or changed", "{}")
        elif old is not None:
            alarm.evaluated, alarm.judged, alarm.acted = old.evaluated, old.judged, old.acted
            if alarm.state != old.state:
                self._set_by_hand.append((alarm, old.state, str(described["StateReason"])))

    async def _evaluate(self, alarm: Alarm, end: float, now: float) -> list[Trigger]:
        data = alarm.data(self._history, end)
        verdict = judge(alarm.rule, data)
        alarm.judged = Judged(values=verdict.values, stale=data[-1] is None)
        if verdict.state is None or verdict.state == alarm.state or alarm.has_few_samples(self._history, end):
            return self._again(alarm, now)
        return await self._change(alarm, verdict, verdict.state)

    async def _change(self, alarm: Alarm, verdict: Verdict, state: State) -> list[Trigger]:
        old, reason = alarm.state, reason_of(alarm, verdict, state)
        alarm.state = state
        if not await self._say(alarm.name, state, reason, reason_data(alarm, verdict)):
            return []
        return await self._enter(alarm, old, reason)

    async def _say(self, name: str, state: State, reason: str, data: str) -> bool:
        """Set the state in CloudWatch; says whether the alarm is still there."""
        try:
            await self._front.run(
                lambda: self._front.cloudwatch().set_alarm_state(
                    AlarmName=name, StateValue=state, StateReason=reason, StateReasonData=data
                )
            )
        except ClientError:
            self._alarms.pop(name, None)
            return False
        return True

    async def _enter(self, alarm: Alarm, old: State, reason: str) -> list[Trigger]:
        """Do what is asked for when the alarm has entered its state."""
        for action in alarm.actions(alarm.state):
            if _SNS in action:
                await self._publish(action, alarm, old, reason)
            elif _POLICY not in action:
                _logger.warning("alarm %s: action %s is not part of this emulation", alarm.name, action)
        return self._again(alarm, self._clock.now(), first=True)

    def _again(self, alarm: Alarm, now: float, *, first: bool = False) -> list[Trigger]:
        judged = alarm.judged
        # A state that only older data hold up is not told again: on the service what the first telling began would
        # still go on, and here a capacity that came up within seconds would be raised twice for one call.
        held_up = bool(judged.values) and judged.stale
        if not first and (held_up or now < alarm.acted + _REPEAT_S):
            return []
        actions: Collection[str] = [action for action in alarm.actions(alarm.state) if _POLICY in action]
        if actions:
            alarm.acted = now
        return [Trigger(action=action, alarm=alarm, values=judged.values) for action in actions]

    async def _publish(self, topic: str, alarm: Alarm, old: State, reason: str) -> None:
        account = self._account
        text = message(alarm, old=old, reason=reason, account_id=account.account_id, region=account.region)
        title = subject(alarm, account.region)
        try:
            await self._front.run(lambda: self._front.sns().publish(TopicArn=topic, Subject=title, Message=text))
        except ClientError as fault:
            _logger.warning("alarm %s could not be sent to %s: %s", alarm.name, topic, fault)
