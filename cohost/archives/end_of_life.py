"""The Lambda function behind the custom resource `Custom::LmiEndOfLife`: computes when an endpoint expires.

The function's handler is `archives.end_of_life.on_event`. The moment of expiry is the time of the deploy that created
the resource or changed `Minutes`, plus `Minutes`. An update that does not change `Minutes` keeps the moment of expiry.
The moment of expiry is stored only in the resource's physical id.

Properties: `Minutes`, the time to expiry; `Expires`, the catalog's own text for this time, for readers of `cdk diff`.
Attributes: `At`, the moment of expiry, and `ThenAt`, one minute later, both as `yyyy-mm-ddThh:mm:ss` in UTC.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from typing import TYPE_CHECKING, Any

from .errors import ArtifactError, unknown_request
from .reply import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    Event = Mapping[str, Any]

_log = logging.getLogger(__package__)
# Lambda's root logger drops all messages below level WARNING.
_log.setLevel(logging.INFO)

_PHYSICAL_ID = re.compile(r"ends-(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_ONE_MINUTE = dt.timedelta(minutes=1)


def on_event(event: Event, context: object) -> None:
    """Carry out CloudFormation's request and send exactly one answer.

    Raises:
        OSError: the answer could not be delivered. Lambda then repeats the event, and the time to expiry counts from
            the repeat.
    """
    del context
    reply = Reply(event)
    try:
        physical_id, data = _handle(event, reply, dt.datetime.now(dt.UTC))
    except Exception as error:  # noqa: BLE001 - without an answer CloudFormation waits for an hour
        _log.exception("%s failed", event.get("RequestType"))
        reply.fail(str(error))
    else:
        reply.succeed(physical_id, data)


def _handle(event: Event, reply: Reply, now: dt.datetime) -> tuple[str, dict[str, str]]:
    match event.get("RequestType"):
        case "Create":
            return _outcome(now + _length(event.get("ResourceProperties", {})))
        case "Update":
            return _outcome(_kept(event) or now + _length(event.get("ResourceProperties", {})))
        case "Delete":
            return reply.physical_id, {}
        case other:
            raise unknown_request(other)


def _kept(event: Event) -> dt.datetime | None:
    """Return the resource's present moment of expiry; None if the update changes `Minutes`."""
    old, new = event.get("OldResourceProperties") or {}, event.get("ResourceProperties") or {}
    found = _PHYSICAL_ID.fullmatch(event.get("PhysicalResourceId", ""))
    if found is None or old.get("Minutes") != new.get("Minutes"):
        return None
    return dt.datetime.fromisoformat(found[1]).replace(tzinfo=dt.UTC)


def _length(properties: Mapping[str, Any]) -> dt.timedelta:
    minutes = str(properties.get("Minutes", ""))
    if not minutes.isdecimal() or int(minutes) == 0:
        raise ArtifactError(
            "expiry-minutes",
            "Minutes",
            f"got {minutes!a}",
            allowed="a whole number above 0",
            fix="correct the template",
        )
    return dt.timedelta(minutes=int(minutes))


def _outcome(moment: dt.datetime) -> tuple[str, dict[str, str]]:
    at = f"{moment:%Y-%m-%dT%H:%M:%S}"
    return f"ends-{at}", {"At": at, "ThenAt": f"{moment + _ONE_MINUTE:%Y-%m-%dT%H:%M:%S}"}
