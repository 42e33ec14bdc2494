"""Run the schedules that moto stores: call each schedule's target at its times."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.endpoint.schedules import next_time
from local_aws.kit.clock import check_schedule
from local_aws.kit.errors import ValidationException
from local_aws.scheduler.targets import TargetError, invoke

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_aws.kit.access_keys import AccessKeys
    from local_aws.kit.clients import Clients


_LOGGER: Final = logging.getLogger(__name__)
POLL_SECONDS: Final = 0.05
# Scheduler's default retry policy (API reference: RetryPolicy), and the emulator's longest wait between two tries.
_MOST_ATTEMPTS: Final = 185
_MOST_AGE_SECONDS: Final = 86_400
_MOST_BACKOFF_SECONDS: Final = 300
_DEFINING: Final = (
    "ScheduleExpression", "ScheduleExpressionTimezone", "StartDate", "EndDate", "State", "Target",
    "ActionAfterCompletion", "LastModificationDate",
)  # fmt: skip

Key = tuple[str, str, str]
"""Region, group and name of a schedule."""


@dataclass(kw_only=True)
class _Entry:
    """A schedule as it was last read from moto; its times are the emulator clock's, in seconds since 1970.

    The intervals of a rate expression count from `anchor`; `due` is the time of the next call, or None for no call. If
    the call has failed so far, `since` is the time at which it was first due, and `attempts` the number of tries.
    """

    definition: Mapping[str, Any]
    anchor: float
    due: float | None
    since: float | None = None
    attempts: int = 0

    @property
    def kind(self) -> str:
        """The kind of the schedule's expression: `at`, `rate` or `cron`."""
        return str(self.definition["ScheduleExpression"]).partition("(")[0]


class UntrustedRoleError(Exception):
    """The error for a schedule whose role no longer trusts EventBridge Scheduler, so its target is not called."""


class ScheduleRunner:
    """Calls the targets of all schedules at their times, in its own thread.

    A one-time schedule whose time has passed before its creation never runs. Calls are as precise as the emulator's
    clock, whereas AWS's precision is one minute.

    Args:
        clients: boto3 clients that call the emulator, for the schedules and for their targets.
        keys: makes the access keys of the schedules' roles, whose rights hold for the targets.
        now: the emulation's clock in seconds since 1970; left out, the machine's.
        is_assumable: says if Scheduler may assume a role for a region and group; left out, it may assume each.
    """

    def __init__(
        self,
        *,
        clients: Clients,
        keys: AccessKeys,
        now: Callable[[], float] = time.time,
        is_assumable: Callable[[str, str, str], bool] = lambda _role, _region, _group: True,
    ) -> None:
        self._is_assumable = is_assumable
        self._clients = clients
        self._keys = keys
        self._now = now
        self._seen = self._now()
        self._regions: set[str] = set()
        self._entries: dict[Key, _Entry] = {}
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Start the thread that calls the targets."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; do not wait for a call of a target that is in progress."""
        self._stopped.set()
        self._changed.set()

    def reload(self, region: str) -> None:
        """Make the thread read a region's schedules again, because they may have changed."""
        self._regions.add(region)
        self._changed.set()

    def run_due(self) -> None:
        """Read the schedules again if they may have changed, then call the targets of all schedules that are due."""
        # The event is cleared first, so that a change during the reading is read the next time.
        if self._changed.is_set():
            self._changed.clear()
            self._read_all()
        self._call_due()

    def _run(self) -> None:
        while not self._stopped.is_set():
            # moto is read only after changes; without schedules the thread sleeps.
            self._changed.wait(POLL_SECONDS if self._entries else None)
            if self._stopped.is_set():
                return
            try:
                self.run_due()
            except Exception:
                # The thread must not end, since without it no schedule would be run any more.
                _LOGGER.exception("the schedules could not be run")

    def _read_all(self) -> None:
        found: dict[Key, _Entry] = {}
        now = self._now()
        for region in list(self._regions):
            client = self._clients.get("scheduler", region)
            for page in client.get_paginator("list_schedules").paginate():
                for summary in page["Schedules"]:
                    key = region, summary["GroupName"], summary["Name"]
                    if (entry := self._entry(key)) is not None:
                        found[key] = entry
        self._entries = found
        self._seen = now

    def _entry(self, key: Key) -> _Entry | None:
        """Return a schedule's entry: the previous entry if the schedule has not changed; None if it is deleted."""
        definition = self._definition(key)
        if definition is None:
            return None
        former = self._entries.get(key)
        if former is not None and former.definition == definition:
            return former
        try:
            check_schedule(definition["ScheduleExpression"], definition["ScheduleExpressionTimezone"] or "UTC")
        except ValidationException as fault:
            _LOGGER.warning("schedule %s: %s", "/".join(key), fault)
            return None
        start = definition["StartDate"]
        anchor = self._seen if start is None else max(start.timestamp(), self._seen)
        entry = _Entry(definition=definition, anchor=anchor, due=None)
        # A rate without a start date begins at once (user guide: "Rate-based schedules").
        entry.due = anchor if entry.kind == "rate" and self._is_on(entry, anchor) else self._next(entry, self._seen)
        return entry

    def _definition(self, key: Key) -> Mapping[str, Any] | None:
        region, group, name = key
        try:
            answer = self._clients.get("scheduler", region).get_schedule(GroupName=group, Name=name)
        except ClientError:
            return None
        return {field: answer.get(field) for field in _DEFINING}

    def _next(self, entry: _Entry, after: float) -> float | None:
        text, zone = entry.definition["ScheduleExpression"], entry.definition["ScheduleExpressionTimezone"]
        due = next_time(text, zone or "UTC", after, start=entry.anchor)
        return due if due is not None and self._is_on(entry, due) else None

    @staticmethod
    def _is_on(entry: _Entry, moment: float) -> bool:
        """Return True if the schedule is enabled and, for a recurring schedule, its EndDate is not before `moment`."""
        end = None if entry.kind == "at" else entry.definition["EndDate"]
        return entry.definition["State"] == "ENABLED" and (end is None or moment <= end.timestamp())

    def _call_due(self) -> None:
        now = self._now()
        self._seen = now
        due = [(key, entry) for key, entry in self._entries.items() if entry.due is not None and entry.due <= now]
        for key, entry in sorted(due, key=lambda item: item[1].due or now):
            # The schedule may have been changed or deleted without a request to this service (moto's reset).
            if self._definition(key) != entry.definition:
                self._changed.set()
                continue
            self._call(key, entry, now)

    def _call(self, key: Key, entry: _Entry, now: float) -> None:
        target = entry.definition["Target"]
        try:
            self._invoke(key, target)
        except (BotoCoreError, ClientError, UntrustedRoleError) as error:
            self._count(key, "TargetErrorCount")
            if self._will_retry(entry, now):
                return
            self._count(key, "InvocationDroppedCount")
            _LOGGER.warning("schedule %s: given up after %d tries: %s", "/".join(key), entry.attempts, error)
        except TargetError as error:
            _LOGGER.warning("schedule %s: %s", "/".join(key), error)
        except Exception:
            # A schedule that stayed due would fail again at each poll, and hold up the calls after its own.
            _LOGGER.exception("schedule %s: given up", "/".join(key))
        self._finish(key, entry, now)

    def _invoke(self, key: Key, target: Mapping[str, Any]) -> None:
        region, group, name = key
        role = str(target["RoleArn"])
        if not self._is_assumable(role, region, group):
            raise UntrustedRoleError(role)
        invoke(target, partial(self._clients.signed_by, self._keys.for_role(role, f"{group}-{name}")), region)

    def _count(self, key: Key, metric: str) -> None:
        """Add 1 to a failure metric of the schedule's group (user guide: "Monitoring EventBridge Scheduler")."""
        region, group, _ = key
        datum = {"MetricName": metric, "Dimensions": [{"Name": "ScheduleGroup", "Value": group}], "Value": 1.0}
        try:
            self._clients.get("cloudwatch", region).put_metric_data(Namespace="AWS/Scheduler", MetricData=[datum])
        except (BotoCoreError, ClientError) as error:
            _LOGGER.warning("metrics of schedule group %s: %s", group, error)

    @staticmethod
    def _will_retry(entry: _Entry, now: float) -> bool:
        """Return True if the retry policy allows another try of a failed call, and set `due` to its time."""
        policy = entry.definition["Target"].get("RetryPolicy", {})
        entry.since = entry.since or entry.due or now
        entry.attempts += 1
        age = policy.get("MaximumEventAgeInSeconds", _MOST_AGE_SECONDS)
        if entry.attempts > policy.get("MaximumRetryAttempts", _MOST_ATTEMPTS) or now - entry.since > age:
            return False
        entry.due = now + min(2.0**entry.attempts, _MOST_BACKOFF_SECONDS)
        return True

    def _finish(self, key: Key, entry: _Entry, now: float) -> None:
        entry.since, entry.attempts = None, 0
        entry.due = None if entry.kind == "at" else self._next(entry, now)
        if entry.due is None and entry.definition["ActionAfterCompletion"] == "DELETE":
            region, group, name = key
            self._clients.get("scheduler", region).delete_schedule(GroupName=group, Name=name)
