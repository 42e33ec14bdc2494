"""CloudWatch as callers see it: moto, with an eye on what passes.

Values that are put are taken into the history; after a change of alarms they are looked at anew. Composite alarms are
refused: nothing would evaluate them. Answers are moto's own.
"""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers

from local_aws.cloudwatch.metric_store import COARSE, Metric
from local_aws.gateway import aws_error
from local_aws.kit.clients import MARK
from local_aws.kit.query_protocol import parse_form
from local_aws.kit.validation import service_model
from local_aws.moto_services import capture, read_body, replay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.cloudwatch.alarms import Alarms
    from local_aws.cloudwatch.metric_store import History, Sample
    from local_aws.kit.clock import Clock


_PUTS: Final = "PutMetricAlarm"
_CHANGES: Final = frozenset({_PUTS, "DeleteAlarms", "SetAlarmState", "EnableAlarmActions", "DisableAlarmActions"})
_FIRST_ERROR: Final = 300


class Monitoring:
    """The ASGI app of CloudWatch.

    Args:
        moto: answers.
        history: takes in what is put.
        alarms: is told of changes.
        clock: says when a value was measured.
    """

    def __init__(self, moto: ASGIApp, history: History, alarms: Alarms, clock: Clock) -> None:
        self._moto = moto
        self._history = history
        self._alarms = alarms
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers, body = Headers(scope=scope), await read_body(receive)
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        action = _action(headers, plain)
        if action == "PutCompositeAlarm":
            message = "Composite alarms are not part of this emulation of CloudWatch; use metric alarms here"
            await aws_error(headers, code="ValidationError", message=message)(scope, receive, send)
            return
        answer = await capture(self._moto, scope, body)
        if answer.status_code < _FIRST_ERROR:
            # SageMaker's own values came to the history one by one, before they were summed up for this request.
            if action == "PutMetricData" and MARK not in headers.get("user-agent", ""):
                self._take_in(_members(headers, plain))
            elif action in _CHANGES:
                self._alarms.mark_changed()
                if action == _PUTS:
                    # An alarm begins with too little data to judge, and a changed one keeps its state: moto says OK.
                    await self._alarms.refresh()
        await answer(scope, replay(b""), send)

    def _take_in(self, request: Mapping[str, Any]) -> None:
        for datum in request["MetricData"]:
            dimensions = ((one["Name"], one["Value"]) for one in datum.get("Dimensions") or [])
            sample = self._history.sample(
                Metric.of(request["Namespace"], datum["MetricName"], dimensions),
                datum.get("Unit") or "None",
                self._time(datum.get("Timestamp")),
                fine=int(datum.get("StorageResolution") or COARSE) < COARSE,
            )
            _add(sample, datum)

    def _time(self, timestamp: float | str | None) -> float:
        if timestamp is None:
            return self._clock.now()
        if isinstance(timestamp, str):
            return self._clock.at(datetime.fromisoformat(timestamp).timestamp())
        return self._clock.at(timestamp)


def _add(sample: Sample, datum: Mapping[str, Any]) -> None:
    if values := datum.get("Values"):
        counts = datum.get("Counts") or [1] * len(values)
        for value, times in zip(values, counts, strict=True):
            sample.add(float(value), float(times))
    elif (known := datum.get("StatisticValues")) is not None:
        sample.add_set(
            count=float(known["SampleCount"]),
            total=float(known["Sum"]),
            least=float(known["Minimum"]),
            most=float(known["Maximum"]),
        )
    else:
        sample.add(float(datum.get("Value", 0)))


def _action(headers: Mapping[str, str], body: bytes) -> str:
    """The operation of a request, in JSON or as a form, as both kinds of SDK send it."""
    if target := headers.get("x-amz-target"):
        return target.rpartition(".")[2]
    return parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]


def _members(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    if "x-amz-target" in headers:
        members: dict[str, Any] = json.loads(body)
        return members
    shape = service_model("cloudwatch").operation_model("PutMetricData").input_shape
    return {} if shape is None else parse_form(body, shape)
