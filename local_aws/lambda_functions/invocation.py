"""Run each invocation in a new process in the function's folder, with Lambda's environment, time limit and log.

Unlike on AWS, every invocation is a cold start, and the memory limit is told to the handler but not enforced. The lines
that a function prints are written to its log group.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local_aws.kit.access_keys import AccessKey


BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.py")
# The variables of the server's environment that a handler may see; others would leak this machine's set-up to it.
PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
EXIT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """The part of a function's configuration that an invocation needs; `key` is the access key of its role."""

    name: str
    arn: str
    role: str
    key: AccessKey
    region: str
    handler: str
    timeout_seconds: int
    memory_mb: int
    log_group: str
    environment: Mapping[str, str]
    code: Path


@dataclass(frozen=True, kw_only=True)
class InvocationResult:
    """The result of an invocation: the answer's payload, a flag for an error, and the lines of the log."""

    payload: bytes
    failed: bool
    log_stream: str
    log: tuple[str, ...]


class Invoker:
    """Starts a process for each invocation of a handler; `stop` kills the processes that still run.

    Args:
        endpoint_url: the emulator's URL, which the handler's SDK is to call.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def invoke(self, spec: FunctionSpec, event: bytes) -> InvocationResult:
        """Run the handler once, wait for its end, and kill it at the function's time limit.

        Args:
            spec: the function.
            event: the event as JSON.
        """
        request_id, started = str(uuid.uuid4()), time.time()
        stream = f"{datetime.now(tz=UTC):%Y/%m/%d}/[$LATEST]{uuid.uuid4().hex}"
        request = {
            "event": json.loads(event or b"null"),
            "request_id": request_id,
            "function_arn": spec.arn,
            "deadline": started + spec.timeout_seconds,
        }
        outcome, printed = self._run(spec, stream, json.dumps(request).encode() + b"\n")
        duration = (time.time() - started) * 1000
        failed = "result" not in outcome
        payload = json.dumps(outcome["error"]) if failed else str(outcome["result"])
        log = (
            f"START RequestId: {request_id} Version: $LATEST",
            *printed.decode("utf-8", "replace").splitlines(),
            *((f"[ERROR] {outcome['error']['errorMessage']}",) if failed else ()),
            f"END RequestId: {request_id}",
            f"REPORT RequestId: {request_id}\tDuration: {duration:.2f} ms\tMemory Size: {spec.memory_mb} MB",
        )
        return InvocationResult(payload=payload.encode(), failed=failed, log_stream=stream, log=log)

    def _run(self, spec: FunctionSpec, stream: str, request: bytes) -> tuple[dict[str, Any], bytes]:
        read_fd, write_fd = os.pipe()
        with os.fdopen(read_fd, "rb") as result:
            try:
                process = self._start(spec, stream, write_fd)
            finally:
                os.close(write_fd)
            try:
                printed, timed_out = _converse(process, request, spec.timeout_seconds)
            finally:
                with self._lock:
                    self._running.discard(process)
            written = result.read()
        if timed_out:
            stamp = datetime.now(tz=UTC).isoformat(timespec="milliseconds")
            message = f"{stamp} Task timed out after {spec.timeout_seconds:.2f} seconds"
            return {"error": {"errorMessage": message, "errorType": "Sandbox.Timedout"}}, printed
        if not written:
            message = f"RequestId: Error: Runtime exited with error: exit status {process.returncode}"
            return {"error": {"errorMessage": message, "errorType": "Runtime.ExitError"}}, printed
        outcome: dict[str, Any] = json.loads(written)
        return outcome, printed

    def _start(self, spec: FunctionSpec, stream: str, write_fd: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - this is what running a function means
            [sys.executable, str(BOOTSTRAP), spec.handler, str(write_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=spec.code,
            env=self._environment(spec, stream),
            pass_fds=(write_fd,),
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
        return process

    def _environment(self, spec: FunctionSpec, stream: str) -> dict[str, str]:
        """Return a handler's environment variables: Lambda's reserved variables replace the function's own ones.

        Source: Lambda developer guide, "environment variables".
        """
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "PYTHONDONTWRITEBYTECODE": "1",
            "TZ": ":UTC",
            "AWS_ENDPOINT_URL": self._endpoint_url,
            **spec.environment,
            **spec.key.environment(),
            "AWS_REGION": spec.region,
            "AWS_DEFAULT_REGION": spec.region,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_LAMBDA_FUNCTION_NAME": spec.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": spec.log_group,
            "AWS_LAMBDA_LOG_STREAM_NAME": stream,
            "LAMBDA_TASK_ROOT": str(spec.code),
            "_HANDLER": spec.handler,
        }

    @property
    def running(self) -> int:
        """The number of handler processes that run at present."""
        with self._lock:
            return len(self._running)

    def stop(self) -> None:
        """Kill the processes of all running handlers."""
        with self._lock:
            running = list(self._running)
        for process in running:
            _kill(process)


def _converse(process: subprocess.Popen[bytes], request: bytes, timeout_seconds: float) -> tuple[bytes, bool]:
    """Send the request to the handler's process; return its printed output, and True if the time limit ended it.

    `Popen.communicate` is not usable: it would close the pipe after the request, and the process exits when the pipe
    closes.
    """
    printed: list[bytes] = []
    assert process.stdin is not None  # noqa: S101 - both pipes were requested
    assert process.stdout is not None  # noqa: S101 - as above
    output = process.stdout
    reader = threading.Thread(target=lambda: printed.append(output.read()), daemon=True)
    reader.start()
    # The process may have died while starting; its output has the reason.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
    timed_out = False
    try:
        process.wait(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
    # The process group is killed after a success too, because processes that the handler started must not outlive it.
    _kill(process)
    process.wait(timeout=EXIT_SECONDS)
    reader.join(timeout=EXIT_SECONDS)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    output.close()
    return b"".join(printed), timed_out


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # The processes have ended already.
        return


LOGGER: Final = logging.getLogger(__name__)
# CloudWatch Logs takes at most 256 KiB per event and 10,000 events per call.
EVENT_LIMIT: Final = 200_000
EVENTS_PER_CALL: Final = 1000
OWN_GROUPS: Final = "/aws/lambda/"


def write_log(client: Any, group: str, stream: str, lines: Sequence[str]) -> None:
    """Write the lines of an invocation into a new log stream.

    Lambda itself creates a missing log group whose name begins with `/aws/lambda/`. Any other log group that a
    function's configuration names belongs to the user, and is not created. If the log cannot be written, the server's
    own log gets a line about it, but the invocation does not fail.
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


def _ensure(create: Any, **names: str) -> None:  # `call` is a method of a boto3 client
    try:
        create(**names)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
