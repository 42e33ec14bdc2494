"""Running Lambda handlers as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from local_aws.kit.access_keys import AccessKey
from local_aws.lambda_functions.invocation import BOOTSTRAP, FunctionSpec, InvocationResult, Invoker
from local_aws.testing import wait_for

pytestmark = pytest.mark.process

KEY = AccessKey(key_id="ASIA1", secret="s", principal="arn:role", token="t")


def invoke(folder: Path, source: str, event: Any = None, **fields: Any) -> InvocationResult:
    """Run `handler` of this source once."""
    (folder / "index.py").write_text(source, encoding="utf-8")
    spec = FunctionSpec(
        role="arn:aws:iam::123456789012:role/f",
        **{
            "name": "f",
            "arn": "arn:f",
            "key": KEY,
            "region": "us-east-1",
            "handler": "index.handler",
            "timeout_seconds": 600,
            "memory_mb": 256,
            "log_group": "/aws/lambda/f",
            "environment": {"MINE": "yes"},
            "code": folder,
            **fields,
        },
    )
    return Invoker("http://127.0.0.1:1").invoke(spec, json.dumps(event).encode())


CONTEXT = """
import os, sys
def handler(event, context):
    print("said on stdout")
    print("said on stderr", file=sys.stderr)
    return {
        "event": event, "name": context.function_name, "arn": context.invoked_function_arn,
        "remaining": context.get_remaining_time_in_millis(), "id": context.aws_request_id,
        "group": context.log_group_name, "memory": context.memory_limit_in_mb,
        "env": {k: os.environ.get(k) for k in (
            "AWS_REGION", "AWS_LAMBDA_FUNCTION_NAME", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "MINE",
            "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "SECRET_OF_HOST")},
        "cwd": os.getcwd(), "path": sys.path[0],
    }
"""


def test_handler_sees_lambdas_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Event, context, environment and folder are Lambda's; nothing of the server's environment leaks in."""
    monkeypatch.setenv("SECRET_OF_HOST", "x")
    result = invoke(tmp_path, CONTEXT, {"k": "ü"})
    assert not result.failed
    seen = json.loads(result.payload)
    assert seen["event"] == {"k": "ü"}
    assert (seen["name"], seen["arn"], seen["group"], seen["memory"]) == ("f", "arn:f", "/aws/lambda/f", "256")
    assert 500_000 < seen["remaining"] <= 600_000
    assert seen["env"] == {
        "AWS_REGION": "us-east-1",
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "ASIA1",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SESSION_TOKEN": "t",
        "MINE": "yes",
        "SECRET_OF_HOST": None,
    }
    assert seen["cwd"] == seen["path"] == str(tmp_path)
    assert result.log[0].startswith(f"START RequestId: {seen['id']}")
    assert {"said on stdout", "said on stderr"} <= set(result.log)


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("def handler(e, c): raise ValueError('wrong')", "ValueError", "wrong"),
        ("import nothing_like_this", "ModuleNotFoundError", "nothing_like_this"),
        ("x = 1", "AttributeError", "handler"),
        ("def handler(e, c): return object()", "TypeError", "not JSON serializable"),
        ("import sys\ndef handler(e, c): sys.exit(3)", "SystemExit", "3"),
        ("import os\ndef handler(e, c): os._exit(3)", "Runtime.ExitError", "exit status 3"),
        ("import os, signal\ndef handler(e, c): os.kill(os.getpid(), signal.SIGKILL)", "Runtime.ExitError", "-9"),
    ],
)
def test_failure_has_lambdas_form(tmp_path: Path, source: str, kind: str, text: str) -> None:
    """Each failure of a handler has Lambda's payload with type and message."""
    result = invoke(tmp_path, source)
    assert result.failed
    payload = json.loads(result.payload)
    assert payload["errorType"] == kind
    assert text in payload["errorMessage"]


def test_time_limit_ends_the_handler_and_its_children(tmp_path: Path) -> None:
    """At the function's Timeout the handler and all processes that it started are killed."""
    source = (
        "import subprocess, time, pathlib\n"
        "def handler(event, context):\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    pathlib.Path('whole').write_text(str(child.pid))\n"
        "    pathlib.Path('whole').rename('child')\n"
        "    time.sleep(600)\n"
    )
    for limit in (1, 10, 100):
        result = invoke(tmp_path, source, timeout_seconds=limit)
        assert json.loads(result.payload)["errorType"] == "Sandbox.Timedout"
        assert f"Task timed out after {limit}.00 seconds" in json.loads(result.payload)["errorMessage"]
        if (tmp_path / "child").exists():
            break  # on a busy machine a second may be over before the handler has begun
    # A killed process takes a moment to be gone, and the one that was killed first is all that the runner waits for.
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not is_alive(child))


def test_stop_ends_what_runs(tmp_path: Path) -> None:
    """A server that stops leaves no handler behind."""
    (tmp_path / "index.py").write_text("import time\ndef handler(e, c): time.sleep(600)\n", encoding="utf-8")
    invoker = Invoker("http://127.0.0.1:1")
    spec = FunctionSpec(
        role="arn:aws:iam::123456789012:role/f",
        name="f", arn="arn:f", key=KEY, region="us-east-1", handler="index.handler", timeout_seconds=600, memory_mb=128,
        log_group="g", environment={}, code=tmp_path,
    )  # fmt: skip
    results: list[InvocationResult] = []
    caller = threading.Thread(target=lambda: results.append(invoker.invoke(spec, b"{}")))
    caller.start()
    wait_for(lambda: invoker.running)
    invoker.stop()
    caller.join(timeout=60)
    assert not caller.is_alive()
    assert results[0].failed


def test_handler_leaves_with_its_server(tmp_path: Path) -> None:
    """The process of a handler ends when its server is killed."""
    (tmp_path / "index.py").write_text("import time\ndef handler(e, c): time.sleep(600)\n", encoding="utf-8")
    environment = {
        "LAMBDA_TASK_ROOT": str(tmp_path), "AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128", "AWS_LAMBDA_LOG_GROUP_NAME": "g", "AWS_LAMBDA_LOG_STREAM_NAME": "s",
    }  # fmt: skip
    command = [sys.executable, str(BOOTSTRAP), "index.handler", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        request = {"event": {}, "request_id": "r", "function_arn": "a", "deadline": time.time() + 600}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.close()
        assert process.wait(60) == 1


def test_much_output_does_not_block(tmp_path: Path) -> None:
    """A handler with more output than a pipe holds still ends."""
    result = invoke(tmp_path, "def handler(e, c):\n    print('x' * 500_000)\n    return 1\n")
    assert result.payload == b"1"


def is_alive(pid: int) -> bool:
    """Return True if a process runs; an ended process that waits for its parent does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
