"""Logs of instances: one file each, with the container's output and SageMaker's lines, sent to CloudWatch Logs.

The log group of an endpoint is created when the endpoint's first line is sent, as on SageMaker, unless a stack has
created it before. A deleted log group is not created again while the endpoint exists.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from local_aws.kit.filter_patterns import datum_of, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mypy_boto3_logs.type_defs import InputLogEventTypeDef

    from local_aws.kit.clients import ServiceClients


class InstanceLog:
    """Append lines to the log file of an instance; the container appends its output to the same file in whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, text: str) -> None:
        """Append the line `<UTC time> sagemaker <text>`; each run of white space in the text becomes one blank."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{now} sagemaker {' '.join(text.split())}\n")


_logger = logging.getLogger(__name__)

_BYTES_PER_LOOK = 256 * 1024  # well under PutLogEvents' limit of 1 MiB with 26 bytes added to each line
_EVENTS_PER_PUT = 1000


@dataclass
class _Tail:
    """One log file, its destination in CloudWatch Logs, and the number of its bytes that were already sent."""

    group: str
    stream: str
    path: Path
    sent_bytes: int = 0
    stream_made: bool = False


class LogShipper:
    """Send the new lines of all attached log files to CloudWatch Logs with every `publish`."""

    def __init__(self, clients: ServiceClients) -> None:
        self._clients = clients
        self._tails: dict[Path, _Tail] = {}
        self._groups_seen: set[str] = set()

    def attach(self, group: str, stream: str, path: Path) -> None:
        """Send the lines of a log file to a log stream from now on; the file need not exist yet."""
        self._tails.setdefault(path, _Tail(group, stream, path))

    async def detach(self, path: Path) -> None:
        """Send the remaining lines of a log file and stop reading the file."""
        if (tail := self._tails.pop(path, None)) is not None:
            try:
                await self._clients.run(self._ship, tail)
            except BotoCoreError:
                # When the whole emulation ends, its front door ends first; the lines stay in the file, and this error
                # must not keep the rest of the emulation from ending.
                _logger.info("the rest of %s was not sent: the embedded CloudWatch is gone", path)

    def forget_group(self, group: str) -> None:
        """Forget the log group of a deleted endpoint, so that a new endpoint of the same name creates it again."""
        self._groups_seen.discard(group)

    async def publish(self) -> None:
        """Send the new lines of every attached log file."""
        for tail in list(self._tails.values()):
            await self._clients.run(self._ship, tail)

    def _ship(self, tail: _Tail) -> None:
        lines, read = _new_lines(tail)
        if lines:
            self._put(tail, lines)
        tail.sent_bytes += read

    def _put(self, tail: _Tail, lines: list[str]) -> None:
        now = int(time.time() * 1000)
        events: list[InputLogEventTypeDef] = [{"timestamp": now, "message": line} for line in lines]
        try:
            self._ensure_stream(tail)
            for start in range(0, len(events), _EVENTS_PER_PUT):
                self._clients.logs().put_log_events(
                    logGroupName=tail.group,
                    logStreamName=tail.stream,
                    logEvents=events[start : start + _EVENTS_PER_PUT],
                )
            self._apply_filters(tail.group, lines)
        except self._clients.logs().exceptions.ResourceNotFoundException:
            # The user has deleted the log group while the endpoint lives, so the lines stay in the file.
            tail.stream_made = True

    def _apply_filters(self, group: str, lines: list[str]) -> None:
        """Send the metric data that the group's metric filters extract from new lines; moto only stores the filters."""
        for one in self._clients.logs().describe_metric_filters(logGroupName=group)["metricFilters"]:
            pattern = parse_pattern(one["filterPattern"])
            for transformation in one["metricTransformations"]:
                data = [datum for line in lines if (datum := datum_of(pattern, transformation, line)) is not None]
                for start in range(0, len(data), _EVENTS_PER_PUT):
                    batch: Any = data[start : start + _EVENTS_PER_PUT]
                    namespace = transformation["metricNamespace"]
                    self._clients.cloudwatch().put_metric_data(Namespace=namespace, MetricData=batch)

    def _ensure_stream(self, tail: _Tail) -> None:
        if tail.stream_made:
            return
        logs = self._clients.logs()
        if tail.group not in self._groups_seen:
            _unless_there(lambda: logs.create_log_group(logGroupName=tail.group))
            self._groups_seen.add(tail.group)
        _unless_there(lambda: logs.create_log_stream(logGroupName=tail.group, logStreamName=tail.stream))
        tail.stream_made = True


def _unless_there(create: Callable[[], object]) -> None:
    try:
        create()
    except ClientError as fault:
        if fault.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise


def _new_lines(tail: _Tail) -> tuple[list[str], int]:
    """Return the whole lines of a log file that were not sent yet, and their size in bytes with line ends."""
    try:
        with tail.path.open("rb") as file:
            file.seek(tail.sent_bytes)
            data = file.read(_BYTES_PER_LOOK)
    except FileNotFoundError:
        return [], 0
    end = data.rfind(b"\n") + 1 or (len(data) if len(data) == _BYTES_PER_LOOK else 0)
    lines = data[:end].decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()], end
