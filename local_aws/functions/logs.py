"""What functions print, into their log group."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGGER: Final = logging.getLogger(__name__)
# CloudWatch Logs takes 256 KiB an event and 10,000 events a call.
EVENT_LIMIT: Final = 200_000
EVENTS_PER_CALL: Final = 1000
OWN_GROUPS: Final = "/aws/lambda/"


def write_log(client: Any, group: str, stream: str, lines: Sequence[str]) -> None:  # noqa: ANN401 - boto3 client
    """Write lines into a stream of its own.

    Lambda's own group `/aws/lambda/…` is made if need be. A group that the function's configuration names is somebody
    else's: it is not made again after it was removed. A log that cannot be written is a line in the server's own log
    and never an error of the invocation.
    """
    stamp = int(time.time() * 1000)
    events = [{"timestamp": stamp, "message": line[:EVENT_LIMIT]} for line in lines if line]
    try:
        if group.startswith(OWN_GROUPS):
            _ensure(client.create_log_group, logGroupName=group)
        _ensure(client.create_log_stream, logGroupName=group, logStreamName=stream)
        for start in range(0, len(events), EVENTS_PER_CALL):
            page = events[start : start + EVENTS_PER_CALL]
            client.put_log_events(logGroupName=group, logStreamName=stream, logEvents=page)
    except (BotoCoreError, ClientError) as error:
        LOGGER.warning("Cannot write to log group %s: %s", group, error)


def _ensure(create: Any, **names: str) -> None:  # noqa: ANN401 - a method of a boto3 client
    try:
        create(**names)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
