"""The HTTP interface of CloudWatch: moto answers the requests; this package records metrics and evaluates alarms.

Composite alarms are rejected, because they are not evaluated.
"""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers

from local_aws.cloudwatch.evaluation import AlarmEvaluator
from local_aws.cloudwatch.metric_store import COARSE, Metric
from local_aws.gateway import aws_error, read_body, replay
from local_aws.kit.background import DueLoop
from local_aws.kit.clients import MARK, ServiceClients
from local_aws.kit.errors import not_emulated
from local_aws.kit.query_protocol import parse_form
from local_aws.kit.validation import service_model
from local_aws.moto_services import capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.cloudwatch.metric_store import MetricStore, StatisticSet
    from local_aws.kit.account import Account
    from local_aws.kit.alarm_actions import AlarmActions
    from local_aws.kit.clock import Clock


_PUTS: Final = "PutMetricAlarm"
_CHANGES: Final = frozenset({_PUTS, "DeleteAlarms", "SetAlarmState", "EnableAlarmActions", "DisableAlarmActions"})
_FIRST_ERROR: Final = 300


class CloudWatch:
    """CloudWatch of one account and region; `asgi` answers its requests, which are signed for the service `monitoring`.

    No background work runs while there are no alarms.

    Args:
        moto: moto's application, which keeps the alarms and answers the requests.
        endpoint_url: returns the emulator's URL, where the other services are; called at first use.
        account: the account and region that messages name.
        clock: the clock of the alarms' periods.
        metrics: the values of all metrics; values of PutMetricData are added to them.
        act: carries out the alarms' actions that are scaling policies.
    """

    def __init__(
        self,
        *,
        moto: ASGIApp,
        endpoint_url: Callable[[], str],
        account: Account,
        clock: Clock,
        metrics: MetricStore,
        act: AlarmActions,
    ) -> None:
        self._moto = moto
        self._clock = clock
        self._metrics = metrics
        self._act = act
        self._clients = ServiceClients(endpoint_url, account.region)
        self._loop = DueLoop("CloudWatch", clock, next_due=self._next_due, work=self._evaluate)
        self._alarms = AlarmEvaluator(metrics, clock, account, self._clients, self._loop.wake)

    def in_alarm(self, names: Iterable[str]) -> list[str]:
        """Return those of the given alarm names whose alarm is in the state ALARM."""
        return self._alarms.in_alarm(names)

    async def startup(self) -> None:
        """Start to evaluate alarms. Call this method once, in the event loop that serves `asgi`."""
        self._loop.start()

    async def shutdown(self) -> None:
        """Stop evaluating alarms."""
        await self._loop.stop()
        await self._clients.close()

    def _next_due(self) -> float | None:
        return self._alarms.next_due()

    async def _evaluate(self) -> None:
        await self._alarms.refresh()
        await self._act(await self._alarms.evaluate())

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the CloudWatch API."""
        headers, body = Headers(scope=scope), await read_body(receive)
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        action = _action(headers, plain)
        if action == "PutCompositeAlarm":
            message = not_emulated(action, "CloudWatch", allowed="PutMetricAlarm")
            await aws_error(headers, code="ValidationError", message=message)(scope, receive, send)
            return
        answer = await capture(self._moto, scope, body)
        if answer.status_code < _FIRST_ERROR:
            # The emulated SageMaker's values were recorded one by one, before they were summed up for this request.
            if action == "PutMetricData" and MARK not in headers.get("user-agent", ""):
                self._record(_members(headers, plain))
            elif action in _CHANGES:
                self._alarms.mark_changed()
                if action == _PUTS:
                    # A new alarm starts in INSUFFICIENT_DATA, a changed alarm keeps its state; moto sets both to OK.
                    await self._alarms.refresh()
        await answer(scope, replay(b""), send)

    def _record(self, request: Mapping[str, Any]) -> None:
        for datum in request["MetricData"]:
            dimensions = ((one["Name"], one["Value"]) for one in datum.get("Dimensions") or [])
            statistics = self._metrics.at(
                Metric.of(request["Namespace"], datum["MetricName"], dimensions),
                datum.get("Unit") or "None",
                self._time(datum.get("Timestamp")),
                fine=int(datum.get("StorageResolution") or COARSE) < COARSE,
            )
            _add(statistics, datum)

    def _time(self, timestamp: float | str | None) -> float:
        if timestamp is None:
            return self._clock.now()
        if isinstance(timestamp, str):
            return self._clock.at(datetime.fromisoformat(timestamp).timestamp())
        return self._clock.at(timestamp)


def _add(statistics: StatisticSet, datum: Mapping[str, Any]) -> None:
    if values := datum.get("Values"):
        counts = datum.get("Counts") or [1] * len(values)
        for value, times in zip(values, counts, strict=True):
            statistics.add(float(value), float(times))
    elif (known := datum.get("StatisticValues")) is not None:
        statistics.add_set(
            count=float(known["SampleCount"]),
            total=float(known["Sum"]),
            minimum=float(known["Minimum"]),
            maximum=float(known["Maximum"]),
        )
    else:
        statistics.add(float(datum.get("Value", 0)))


def _action(headers: Mapping[str, str], body: bytes) -> str:
    """Return a request's operation: a JSON request names it in a header, a form request in the body."""
    if target := headers.get("x-amz-target"):
        return target.rpartition(".")[2]
    return parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]


def _members(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    if "x-amz-target" in headers:
        members: dict[str, Any] = json.loads(body)
        return members
    shape = service_model("cloudwatch").operation_model("PutMetricData").input_shape
    return {} if shape is None else parse_form(body, shape)
