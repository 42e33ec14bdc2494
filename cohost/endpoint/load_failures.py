"""Read from a container's log which models were not loaded, and the reasons.

When a model fails to load, DJL Serving's answer contains the reason only if the handler reported one; all other reasons
appear only in the log. The patterns of the log's lines have two sources. In DJL Serving 0.36.0, the logger PyProcess
writes a worker's output, whose lines begin with the process and the model, and the logger ModelServer writes about
models of the model store that fail to load. The SageMaker of the local AWS emulator adds lines of its own to the log.
"""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cohost.archives.archive import server_name
from cohost.errors import InvocationError
from cohost.routing import ARCHIVE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mypy_boto3_logs import CloudWatchLogsClient


ENDPOINT_LOGS: Final = "/aws/sagemaker/Endpoints/"
COMPONENT_LOGS: Final = "/aws/sagemaker/InferenceComponents/"

_TAIL_LINES: Final = 10
_MOST_PAGES: Final = 20
_MOST_BYTES: Final = 1 << 20
# Seconds before each read: CloudWatch Logs returns a line only some seconds after it was written.
_LOG_PAUSES_S: Final = (0.5, 1.5, 3.0, 5.0)
# DJL Serving shortens a model's name to this number of characters in the names of its workers' threads.
_THREAD_NAME: Final = 15

_WORKER = re.compile(rf"W-\d+-(?P<model>.{{1,{_THREAD_NAME}}}?)-std(?:out|err): ?(?P<text>.*)$")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:^|[\s.])(?P<text>(?P<kind>[A-Z]\w*(?:Exception|Error)): .+)$")
_STORE_FAILED = re.compile(r"ModelLoadingError\.Count:1\|#Model:(?P<model>[^,\s]+)")
_STORE_NAME_TAKEN = re.compile(r"Workflow (?P<model>\S+) is already registered")
_INITIALIZED = re.compile(r"Model \[(?P<model>[^\]]+)\] initialized")
_NOT_LOADED = re.compile(r" sagemaker (?P<model>\S+) was not loaded: (?P<text>.+)$")
_LOADED = re.compile(r" sagemaker (?P<model>\S+) was loaded as (?P<id>\S+)")
_OF_JSON = re.compile(r'"message": ?"(?P<text>(?:[^"\\]|\\.)*)"')
# Texts of DJL Serving's answers that state a failure without its reason, which only the log has.
_WITHOUT_REASON = ("invoke handler failure", "invoke_handler_async() failure", "Python stream closed unexpectedly")


@dataclass(frozen=True, kw_only=True)
class LoadFailure:
    """A model that failed to load, with the reason.

    `model` is the model's name in the catalog, or the container's name for the model if no name of the catalog matches.
    """

    model: str
    reason: str

    def line(self) -> str:
        """Return the failure as one line of text."""
        return f"model {self.model} was not loaded: {self.reason}"


def lacks_reason(answer: str) -> bool:
    """Return True if DJL Serving's answer says that a model's loading failed, but not the reason."""
    return any(text in answer for text in _WITHOUT_REASON)


@dataclass(kw_only=True)
class LogReader:
    """A reader that takes a container's log line by line and tracks the models that failed to load.

    `names` are the catalog's names of the models, to which the reader translates the container's names. `tail` holds
    the last 10 lines, for a container that ends without stating a reason. `last_raised` is the last error that any
    worker raised.
    """

    names: Iterable[str] = ()
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    _failures: dict[str, str] = field(default_factory=dict)
    # The model names in thread names of workers whose last line is inside a traceback, and the summary line of each
    # worker's last traceback by that name.
    _tracing: set[str] = field(default_factory=set)
    _raised: dict[str, str] = field(default_factory=dict)
    last_raised: str = ""
    _last_exception: str = ""

    @property
    def failures(self) -> tuple[LoadFailure, ...]:
        """Return the models that have failed and were not loaded since, in the order of their failures."""
        known = {server_name(name): name for name in self.names}
        return tuple(
            LoadFailure(model=known.get(model, model.removesuffix(ARCHIVE_SUFFIX)), reason=reason)
            for model, reason in self._failures.items()
        )

    def reason(self, model: str) -> str | None:
        """Return the summary line of the last error that a worker of a model raised; None if no worker raised one."""
        return self._raised.get(server_name(model)[:_THREAD_NAME]) or self._raised.get(model[:_THREAD_NAME])

    def feed(self, line: str) -> None:
        """Process the next line of the log."""
        if line.strip():
            self.tail.append(line.strip())
        if (worker := _WORKER.search(line)) is not None:
            self._worker_line(worker["model"], worker["text"])
        elif (failed := _NOT_LOADED.search(line)) is not None:
            self._fail(failed["model"], self._message(failed["text"]))
        elif (loaded := _LOADED.search(line)) is not None:
            self._failures.pop(loaded["model"], None)
        elif (initialized := _INITIALIZED.search(line)) is not None:
            self._failures.pop(initialized["model"], None)
        else:
            self._server_line(line)

    def _worker_line(self, thread: str, text: str) -> None:
        if text.startswith(_TRACEBACK):
            self._tracing.add(thread)
        elif thread in self._tracing and text and not text[0].isspace():
            self._tracing.discard(thread)
            self._raised[thread] = self.last_raised = text.strip()

    def _server_line(self, line: str) -> None:
        if (taken := _STORE_NAME_TAKEN.search(line)) is not None:
            self._fail(taken["model"], f"two folders of the model store become {taken['model']}")
        elif (failed := _STORE_FAILED.search(line)) is not None:
            self._fail(failed["model"], self._last_exception or "the log has no reason")
        elif (exception := _EXCEPTION.search(line)) is not None:
            self._last_exception = exception["text"]

    def _fail(self, model: str, reason: str) -> None:
        # On a multi-model endpoint a worker's thread has SageMaker's name of the model, so the model may have no error
        # under its own name; then the last error of any worker is used.
        raised = self.reason(model) or self.last_raised
        self._failures[model] = f"{reason} ({raised})" if raised and lacks_reason(reason) else reason

    @staticmethod
    def _message(answer: str) -> str:
        """Return the value of `message` in a container's JSON answer, or the whole answer if it has none."""
        found = _OF_JSON.search(answer)
        return answer if found is None else found["text"]


def read_log(path: Path, names: Iterable[str] = ()) -> LogReader:
    """Read the last MiB at most of a container's log from a local file; a missing file counts as an empty log."""
    reader = LogReader(names=names)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return reader
    for line in text.splitlines():
        reader.feed(line)
    return reader


def log_groups(endpoint: str, component: str | None) -> list[str]:
    """Return the names of the log groups that an endpoint's containers write to."""
    return [ENDPOINT_LOGS + endpoint, *([] if component is None else [COMPONENT_LOGS + component])]


@contextmanager
def reason_from_log(logs: CloudWatchLogsClient, endpoint: str, model: str) -> Iterator[None]:
    """Catch an InvocationError of the `with` block that states no reason, and add the reason from the endpoint's log.

    Raises:
        InvocationError: the error of the block, with the reason if the log has one within 10 s.
    """
    begun_ms = int(time.time() * 1000)
    try:
        yield
    except InvocationError as error:
        if not lacks_reason(error.problem):
            raise
        watch = LogWatch(logs, [model], begun_ms)
        if (reason := _first_reason(watch, endpoint, model)) is None:
            raise
        raise error.but(f"{error.problem}; in the log: {reason}") from error


def _first_reason(watch: LogWatch, endpoint: str, model: str) -> str | None:
    for pause_s in _LOG_PAUSES_S:
        time.sleep(pause_s)
        watch.look([ENDPOINT_LOGS + endpoint])
        reasons = [failure.reason for failure in watch.reader.failures if failure.model == model]
        if reason := next(iter(reasons), watch.reader.last_raised):
            return reason
    return None


class LogWatch:
    """A poller of log groups in CloudWatch Logs that passes lines written at or after `since_ms` once to `reader`.

    A log group is skipped if it does not exist or the caller may not read it. `since_ms` is in milliseconds since 1970.
    """

    def __init__(self, logs: CloudWatchLogsClient, names: Iterable[str], since_ms: int) -> None:
        self.reader = LogReader(names=tuple(names))
        self._logs = logs
        self._since_ms = since_ms
        self._seen: set[str] = set()

    def look(self, groups: Iterable[str]) -> None:
        """Read the log events of these groups that were not read by an earlier call."""
        for group in groups:
            try:
                self._read(group)
            except (ClientError, BotoCoreError):
                continue

    def _read(self, group: str) -> None:
        request: dict[str, Any] = {"logGroupName": group, "startTime": self._since_ms}
        for _ in range(_MOST_PAGES):
            page = self._logs.filter_log_events(**request)
            for event in page["events"]:
                if event["eventId"] not in self._seen:
                    self._seen.add(event["eventId"])
                    self.reader.feed(event["message"])
            if not (token := page.get("nextToken")):
                return
            request["nextToken"] = token
