"""The embedded container accepts only callers with the token of its start, and no web page."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from cohost.callers import TOKEN_HEADER, TOKEN_VARIABLE
from local_aws.lmi.container import address_of
from local_aws.testing.running import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_served import Served

ROOT = Path(__file__).parents[4]
ROUTES = [
    ("GET", "/ping"),
    ("POST", "/invocations"),
    ("POST", "/predictions/echo"),
    ("POST", "/models/echo/invoke"),
    ("GET", "/models"),
    ("GET", "/models/echo"),
    ("PUT", "/models/echo?min_worker=1"),
    ("DELETE", "/models/echo"),
    ("OPTIONS", "/models"),
    ("GET", "/server/logging"),
    ("GET", "/_cohost/metrics"),
    ("GET", "/nowhere"),
]
WRITES = """
import pathlib
pathlib.Path(__file__).with_name("it-ran").touch()

def handle(inputs):
    return None
"""
TELLS = """
import os
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add_as_json({"environment": dict(os.environ), "properties": inputs.get_properties()})
"""


def _ask(served: Served, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Send a request with only these headers."""
    url = f"{served.container.url}{path}"
    return httpx.request(method, url, headers=dict(headers or {}), timeout=60, trust_env=False)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_route_answers_without_the_token(served: Served, method: str, path: str) -> None:
    """Each route and method answers 403 without the token, in the server's JSON, and has no effect."""
    answer = _ask(served, method, path)
    assert answer.status_code == 403
    assert (answer.json()["code"], answer.json()["type"]) == (403, "AccessDeniedException")
    assert "x-cohost-token: missing" in answer.json()["message"]
    assert "echo" in served.run(served.client.get("/models")).text


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.test"}, {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.test"}]
)
@pytest.mark.parametrize("path", ["/ping", "/models"])
def test_a_web_page_is_refused_even_with_the_token(served: Served, path: str, headers: dict[str, str]) -> None:
    """A request of a web page is rejected even with the token, so a leaked token is of no use to a page."""
    answer = _ask(served, "GET", path, {**served.container.headers, **headers})
    assert (answer.status_code, answer.json()["type"]) == (403, "AccessDeniedException")
    assert answer.json()["message"].startswith(next(iter(headers)))


def test_a_refused_load_runs_nothing(served: Served) -> None:
    """A rejected load request registers no model and runs no file."""
    folder = served.folder / "written"
    folder.mkdir()
    (folder / "serving.properties").write_text("engine=Python\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    (folder / "model.py").write_text(WRITES)
    query = f"/models?model_name=written&url={folder}"
    assert _ask(served, "POST", query).status_code == 403
    assert _ask(served, "POST", query, {TOKEN_HEADER: "a guess"}).status_code == 403
    assert "written" not in served.run(served.client.get("/models")).text
    assert not (folder / "it-ran").exists()
    assert served.run(served.client.post(query)).status_code == 200
    assert (folder / "it-ran").exists()


def test_no_handler_learns_the_token(served: Served) -> None:
    """A handler finds the server's token neither in a request's properties nor in its environment."""
    assert served.load("tells", "cpu.minWorkers=1\ncpu.maxWorkers=1\n", TELLS).status_code == 200
    told = served.run(served.invoke("tells", {}))
    assert told.json()["properties"]["requestId"]
    assert TOKEN_VARIABLE not in told.json()["environment"]
    assert served.container.token not in told.text
    assert TOKEN_HEADER not in told.text.lower()


def test_the_user_finds_a_containers_address_by_its_process(served: Served) -> None:
    """Only the user can read a container's address file; a process that is no container has no address."""
    assert address_of(served.container.pid) == (served.container.url, served.container.token)
    arguments = psutil.Process(served.container.pid).cmdline()
    assert served.container.token not in arguments
    ready = Path(arguments[arguments.index("--ready-file") + 1])
    assert stat.S_IMODE(ready.stat().st_mode) == 0o600
    assert address_of(os.getpid()) is None


@pytest.mark.parametrize("given", ["of the starter", None])
def test_a_container_started_by_hand_has_a_token_too(tmp_path: Path, given: str | None) -> None:
    """A container has the token of its starter, or an own one beside its address."""
    ready = tmp_path / "ready.json"
    environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
    environment |= {TOKEN_VARIABLE: given} if given else {}
    command = [sys.executable, "-m", "local_aws.lmi", "--port", "0", "--model-store", str(tmp_path / "none")]
    with subprocess.Popen([*command, "--ready-file", str(ready)], cwd=ROOT, env=environment) as process:
        wait_for(ready.exists)
        told = json.loads(ready.read_text())
        url = f"http://127.0.0.1:{told['port']}/ping"
        refused = httpx.get(url, trust_env=False)
        answered = httpx.get(url, headers={TOKEN_HEADER: given or told["token"]}, trust_env=False)
        process.send_signal(signal.SIGTERM)
    assert (refused.status_code, answered.status_code) == (403, 200)
    assert told["token"] == given or len(told["token"]) > 30


def test_without_a_file_the_token_is_told_on_standard_error(tmp_path: Path) -> None:
    """A server without an address file prints the header with its token on stderr."""
    command = [sys.executable, "-m", "local_aws.lmi", "--port", "0", "--model-store", str(tmp_path / "none")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
    assert line.startswith(f"callers have to send this header: {TOKEN_HEADER}: ")
