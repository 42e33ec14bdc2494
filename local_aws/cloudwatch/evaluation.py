"""Evaluate alarms and carry out their actions; SetAlarmState writes the states to moto, which stores the alarms."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.endpoint.scaling_rules import ALARM_REPEAT_S
from local_aws.cloudwatch.alarms import Evaluation, parse_alarm
from local_aws.cloudwatch.expressions import NotEmulated
from local_aws.cloudwatch.notifications import message, reason_data, reason_of, subject
from local_aws.kit.alarm_actions import AlarmTrigger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from local_aws.cloudwatch.alarms import Alarm, Rule, State
    from local_aws.cloudwatch.metric_store import MetricStore
    from local_aws.kit.account import Account
    from local_aws.kit.clients import ServiceClients
    from local_aws.kit.clock import Clock


_logger = logging.getLogger(__name__)

# moto's StateReason of an alarm whose state has not been set since PutMetricAlarm.
_FRESH: Final = "Unchecked: Initial alarm creation"
_SNS, _POLICY = ":sns:", ":scalingPolicy:"


def evaluate(rule: Rule, data: Sequence[float | None]) -> Evaluation:
    """Evaluate an alarm's data, one value per period with the newest last.

    The data cover `LOOKED_BACK_MORE` more periods than the rule evaluates; these older periods replace periods without
    data. If data are still missing, the alarm's TreatMissingData decides.
    """
    stale = data[-1] is None
    there = [value for value in data if value is not None]
    if len(there) >= rule.periods:
        values = there[-rule.periods :]
        alarm = sum(map(rule.breaches, values)) >= rule.to_alarm
        return Evaluation(state="ALARM" if alarm else "OK", values=values, stale=stale)
    missing = rule.periods - len(there)
    return Evaluation(state=_with_gaps(rule, data, there), values=there, missing=missing, stale=stale)


def _with_gaps(rule: Rule, data: Sequence[float | None], there: Sequence[float]) -> State | None:
    breaching = sum(map(rule.breaches, there))
    fine = len(there) - breaching
    if breaching >= rule.to_alarm:
        return "ALARM"
    if rule.periods - fine < rule.to_alarm:
        return "OK"
    return _by_treatment(rule, data, fine=fine)


def _by_treatment(rule: Rule, data: Sequence[float | None], *, fine: int) -> State | None:
    """Return the state that TreatMissingData gives; `fine` is the number of values that do not breach the threshold."""
    if rule.missing == "breaching":
        return "ALARM"
    if rule.missing == "notBreaching" or fine:
        return "OK"
    if rule.missing == "ignore":
        return None
    # All values breach. The state is ALARM once the oldest value is old enough, since no value has contradicted it.
    first = next((index for index, value in enumerate(data) if value is not None), None)
    if first is None:
        return "INSUFFICIENT_DATA"
    return "ALARM" if len(data) - first >= rule.to_alarm else None


class AlarmEvaluator:
    """Evaluates all metric alarms of the account.

    Args:
        metrics: the values of all metrics.
        clock: the clock of the alarms' periods.
        account: the account and region that messages name.
        clients: the clients of CloudWatch and SNS.
        wake: called when alarms have been changed, so that the background loop calls `refresh`.
    """

    def __init__(
        self, metrics: MetricStore, clock: Clock, account: Account, clients: ServiceClients, wake: Callable[[], None]
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._account = account
        self._clients = clients
        self._wake = wake
        self._alarms: dict[str, Alarm] = {}
        self._set_by_hand: list[tuple[Alarm, State, str]] = []
        self._changed = False
        self._lock = asyncio.Lock()

    def mark_changed(self) -> None:
        """Note that alarms have changed, so that they are read again before the next evaluation."""
        self._changed = True
        self._wake()

    def state(self, name: str) -> State | None:
        """Return the state of an alarm; None if the alarm does not exist or the emulation cannot evaluate it."""
        return None if (alarm := self._alarms.get(name)) is None else alarm.state

    def in_alarm(self, names: Iterable[str]) -> list[str]:
        """Return those of the given alarm names whose alarm is in the state ALARM."""
        return [name for name in names if self.state(name) == "ALARM"]

    def next_due(self) -> float | None:
        """Return the clock's time in seconds of the next evaluation of an alarm; None if there is no alarm."""
        if self._changed:
            return self._clock.now()
        return min(((alarm.evaluated_step + 1) * alarm.step for alarm in self._alarms.values()), default=None)

    async def refresh(self) -> None:
        """Read the alarms from CloudWatch again, if they are marked as changed."""
        async with self._lock:
            if not self._changed:
                return
            self._changed = False
            described = await self._clients.run(self._describe)
            former, self._alarms = self._alarms, {}
            for one in described:
                await self._take_over(one, former.get(one["AlarmName"]))

    async def evaluate(self) -> list[AlarmTrigger]:
        """Evaluate the alarms that are due, notify their SNS topics, and return the scaling policies to trigger."""
        async with self._lock:
            triggers = []
            for alarm, old, reason in self._set_by_hand:
                triggers += await self._enter(alarm, old, reason)
            self._set_by_hand.clear()
            now = self._clock.now()
            for alarm in list(self._alarms.values()):
                if (period := int(now // alarm.step)) > alarm.evaluated_step:
                    alarm.evaluated_step = period
                    triggers += await self._evaluate(alarm, float(period * alarm.step), now)
            return triggers

    def _describe(self) -> Sequence[Mapping[str, Any]]:
        pages = self._clients.cloudwatch().get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"])
        return [alarm for page in pages for alarm in page.get("MetricAlarms", [])]

    async def _take_over(self, described: Mapping[str, Any], old: Alarm | None) -> None:
        fresh = described["StateReason"] == _FRESH
        try:
            alarm = parse_alarm(described)
        except NotEmulated as fault:
            if fresh:
                await self._set_state(described["AlarmName"], "INSUFFICIENT_DATA", f"Not evaluated: {fault}", "{}")
            return
        self._alarms[alarm.name] = alarm
        if fresh:
            alarm.state = "INSUFFICIENT_DATA" if old is None else old.state
            await self._set_state(alarm.name, alarm.state, "Unchecked: the alarm was made or changed", "{}")
        elif old is not None:
            alarm.evaluated_step, alarm.last, alarm.acted = old.evaluated_step, old.last, old.acted
            if alarm.state != old.state:
                self._set_by_hand.append((alarm, old.state, str(described["StateReason"])))

    async def _evaluate(self, alarm: Alarm, end: float, now: float) -> list[AlarmTrigger]:
        data = alarm.data(self._metrics, end)
        last = alarm.last = evaluate(alarm.rule, data)
        if last.state is None or last.state == alarm.state or alarm.has_few_samples(self._metrics, end):
            return self._triggers(alarm, now)
        return await self._change(alarm, last, last.state)

    async def _change(self, alarm: Alarm, last: Evaluation, state: State) -> list[AlarmTrigger]:
        old, reason = alarm.state, reason_of(alarm, last, state)
        alarm.state = state
        if not await self._set_state(alarm.name, state, reason, reason_data(alarm, last)):
            return []
        return await self._enter(alarm, old, reason)

    async def _set_state(self, name: str, state: State, reason: str, data: str) -> bool:
        """Set the state of an alarm in CloudWatch, and return True if the alarm still exists."""
        try:
            await self._clients.run(
                lambda: self._clients.cloudwatch().set_alarm_state(
                    AlarmName=name, StateValue=state, StateReason=reason, StateReasonData=data
                )
            )
        except ClientError:
            self._alarms.pop(name, None)
            return False
        return True

    async def _enter(self, alarm: Alarm, old: State, reason: str) -> list[AlarmTrigger]:
        """Notify the SNS topics of an alarm whose state has changed, and return the scaling policies to trigger."""
        for action in alarm.actions(alarm.state):
            if _SNS in action:
                await self._publish(action, alarm, old, reason)
            elif _POLICY not in action:
                _logger.warning("alarm %s: action %s is not part of this emulation", alarm.name, action)
        return self._triggers(alarm, self._clock.now(), first=True)

    def _triggers(self, alarm: Alarm, now: float, *, first: bool = False) -> list[AlarmTrigger]:
        last = alarm.last
        # A state that rests on older data only does not trigger policies again. On AWS the scaling that the first
        # trigger began would still be in progress. Here the new capacity is there within seconds, and would be raised
        # twice for one call.
        held_up = bool(last.values) and last.stale
        if not first and (held_up or now < alarm.acted + ALARM_REPEAT_S):
            return []
        actions: Collection[str] = [action for action in alarm.actions(alarm.state) if _POLICY in action]
        if actions:
            alarm.acted = now
        return [_trigger(alarm, action) for action in actions]

    async def _publish(self, topic: str, alarm: Alarm, old: State, reason: str) -> None:
        account = self._account
        text = message(alarm, old=old, reason=reason, account_id=account.account_id, region=account.region)
        title = subject(alarm, account.region)
        try:
            await self._clients.run(lambda: self._clients.sns().publish(TopicArn=topic, Subject=title, Message=text))
        except ClientError as fault:
            _logger.warning("alarm %s could not be sent to %s: %s", alarm.name, topic, fault)


def _trigger(alarm: Alarm, action: str) -> AlarmTrigger:
    return AlarmTrigger(
        action=action,
        alarm=alarm.name,
        state=alarm.state,
        values=alarm.last.values,
        threshold=alarm.rule.threshold,
        comparison=alarm.rule.comparison,
        evaluated_s=alarm.rule.periods * alarm.period,
    )
