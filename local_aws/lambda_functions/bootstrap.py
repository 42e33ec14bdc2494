"""Run one invocation of a Lambda handler; this file runs as a separate program, with the standard library only.

    python bootstrap.py HANDLER RESULT_FD < request

The first line of standard input is the request: `{"event", "request_id", "function_arn", "deadline"}`, with the
deadline in seconds since 1970. The server keeps the pipe of standard input open as long as it runs; when the pipe
closes, this process ends. The result is written to the file descriptor RESULT_FD, so that text that the handler prints
cannot damage it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from typing import Any

USAGE_EXIT = 2


class LambdaContext:
    """The `context` argument of a handler (AWS: Lambda developer guide, "context object in Python")."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.aws_request_id = request["request_id"]
        self.invoked_function_arn = request["function_arn"]
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = None
        self.client_context = None
        self._deadline = request["deadline"]

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the function's time limit, never below 0."""
        return max(0, int((self._deadline - time.time()) * 1000))


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _load(handler: str) -> Any:  # a Lambda handler is any callable
    module, _, name = handler.rpartition(".")
    if not module:
        raise ImportError(f"Bad handler '{handler}': it must be MODULE.FUNCTION")
    return getattr(importlib.import_module(module.replace("/", ".")), name)


def _run(handler: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        result = _load(handler)(request["event"], LambdaContext(request))
        return {"result": json.dumps(result)}
    except BaseException as error:  # noqa: BLE001 - SystemExit too is a failed invocation
        traceback.print_exc()
        return {
            "error": {
                "errorMessage": str(error),
                "errorType": type(error).__name__,
                "requestId": request["request_id"],
                "stackTrace": traceback.format_tb(error.__traceback__),
            }
        }


def main() -> None:
    """Read the request from standard input, run the handler, and write the result to RESULT_FD."""
    if len(sys.argv) != 3:  # noqa: PLR2004 - program, handler, descriptor
        sys.exit(USAGE_EXIT)
    handler, result_fd = sys.argv[1], int(sys.argv[2])
    # The function's folder takes the place of this program's folder, whose modules must not be importable.
    sys.path[0] = os.environ["LAMBDA_TASK_ROOT"]
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    outcome = _run(handler, request)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(result_fd, "w") as result:
        json.dump(outcome, result)
    # Threads that a handler left behind end with the process, as they freeze in Lambda.
    os._exit(0)


if __name__ == "__main__":
    main()
