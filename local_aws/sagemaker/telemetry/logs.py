"""Logs of instances: each has a file for its container's output and the platform's lines, shipped to CloudWatch Logs.

The log group of an endpoint is created when its first line is sent, as on SageMaker, unless a stack has created it
before. A deleted group is not created again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mypy_boto3_logs.type_defs import InputLogEventTypeDef

    from local_aws.kit.clients import ServiceClients


class InstanceLog:
    """Append to the file that the container's output goes to; both only ever append whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, text: str) -> None:
        """Write one line, `<UTC time> sagemaker <text>`; line ends within the text become blanks."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{now} sagemaker {' '.join(text.split())}\n")


_logger = logging.getLogger(__name__)

_BYTES_PER_LOOK = 256 * 1024  # well under PutLogEvents' limit of 1 MiB with 26 bytes added to each line
_EVENTS_PER_PUT = 1000


@dataclass
class _Tail:
    """One log file and how far it was sent."""

    group: str
    stream: str
    path: Path
    sent_bytes: int = 0
    stream_made: bool = False


class LogShipper:
    """Send the new lines of all attached files with every `publish`."""

    def __init__(self, clients: ServiceClients) -> None:
        self._clients = clients
        self._tails: dict[Path, _Tail] = {}
        self._groups_seen: set[str] = set()

    def attach(self, group: str, stream: str, path: Path) -> None:
        """Send the lines of a file to a stream from now on; the file need not exist yet."""
        self._tails.setdefault(path, _Tail(group, stream, path))

    async def detach(self, path: Path) -> None:
        """Send the rest of a file and stop reading it."""
        if (tail := self._tails.pop(path, None)) is not None:
            try:
                await self._clients.run(self._ship, tail)
            except BotoCoreError:
                # When the whole emulation ends, its front door is the first to go; the lines stay in the file, and
                # whatever else has to end must not be kept from it.
                _logger.info("the rest of %s was not sent: the embedded CloudWatch is gone", path)

    def forget_group(self, group: str) -> None:
        """Create the group again when it is needed again, after its endpoint was deleted."""
        self._groups_seen.discard(group)

    async def publish(self) -> None:
        """Send the new lines of every file."""
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
        except self._clients.logs().exceptions.ResourceNotFoundException:
            # The group was removed while the endpoint lives: its owner deleted it, so the lines stay in the file.
            tail.stream_made = True

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
    """Return the whole lines that were not sent yet, and the number of bytes that they and their line ends take."""
    try:
        with tail.path.open("rb") as file:
            file.seek(tail.sent_bytes)
            data = file.read(_BYTES_PER_LOOK)
    except FileNotFoundError:
        return [], 0
    end = data.rfind(b"\n") + 1 or (len(data) if len(data) == _BYTES_PER_LOOK else 0)
    lines = data[:end].decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()], end
