"""Web pages of other origins can create, read and run nothing on any port that this project opens.

In a real browser, for what it sends of itself is its own affair: which of a page's requests carry Origin, which
Sec-Fetch-Site, and what it does with names that point to this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
from fakes.browser import Browser
from web_attacks import Open, Redirecting, Running, attack_from

from local_aws.engines.proxy import guarded_proxy
from local_aws.lmi.container import Container
from local_aws.testing.running import running, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
EVIL = "evil.test"
MARKS = """
import pathlib
pathlib.Path(__file__).with_name("it-ran").touch()

def handle(inputs):
    return None
"""
TEMPLATE = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
CREDENTIAL = "x/20260101/us-east-1/cloudformation/aws4_request"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A port with the most harmful requests for it, as addresses and as fields of a form."""

    port: int
    path: str
    body: str
    untouched: Callable[[], bool]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start a browser for which the name evil.test is this machine, as with an attacker's name server."""
    opened = Browser(
        tmp_path_factory.mktemp("profile"),
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
        # Newer ones of this browser ask the user before a page reaches this machine, and others do not.
        "--disable-features=LocalNetworkAccessChecks",
    )
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    """Start another web site on a port of its own."""
    with Running(Redirecting) as server:
        yield server


@contextlib.contextmanager
def front_door(folder: Path) -> Iterator[Target]:
    """Start an emulator, in which a web page could create stacks whose functions have the user's rights."""
    with running(folder) as door:
        asked = {"Action": "CreateStack", "StackName": "made-by-a-page", "TemplateBody": TEMPLATE}

        def untouched() -> bool:
            return door.client("cloudformation").list_stacks()["StackSummaries"] == []

        query = urlencode({**asked, "X-Amz-Credential": CREDENTIAL})
        yield Target(port=_port(door.server.url), path=f"/?{query}", body=urlencode(asked), untouched=untouched)


@contextlib.contextmanager
def container(folder: Path) -> Iterator[Target]:
    """The embedded container: a page could have a model's code run."""
    model = folder / "model"
    model.mkdir()
    (model / "serving.properties").write_text("engine=Python\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    (model / "model.py").write_text(MARKS)
    query = urlencode({"model_name": "loaded-by-a-page", "url": str(model)})
    with asyncio.Runner() as runner:
        start = Container.start(
            model_store=folder / "none", multi_model=True, hub_roots=[], log_file=folder / "container.log"
        )
        served = runner.run(start)

        def untouched() -> bool:
            listed = httpx.get(f"{served.url}/models", headers=served.headers, trust_env=False).json()
            return listed["models"] == [] and not (model / "it-ran").exists()

        try:
            yield Target(port=_port(served.url), path=f"/models?{query}", body=query, untouched=untouched)
        finally:
            runner.run(served.stop())


@contextlib.contextmanager
def stub(_folder: Path) -> Iterator[Target]:
    """The load tests' stub: a page's calls would be counted."""
    with _stub_process() as port:
        yield Target(port=port, path="/invocations", body='{"inputs": "x"}', untouched=lambda: _calls(port) == 0)


@contextlib.contextmanager
def proxy(_folder: Path) -> Iterator[Target]:
    """The proxy before a real server, which itself looks at nothing."""
    port = _free_port()
    with Running(Open) as real, guarded_proxy(port, "the-token", f"http://127.0.0.1:{real.server_port}"):
        query = urlencode({"url": "/somewhere"})
        yield Target(port=port, path=f"/models?{query}", body=query, untouched=lambda: real.seen == [])


@contextlib.contextmanager
def locust_page(folder: Path) -> Iterator[Target]:
    """Start Locust's web page, from which another page could start load on an endpoint that bills."""
    port = _free_port()
    with _stub_process() as called:
        command = [sys.executable, "-m", "locust", "-f", "load_tests/encoders.py", "--web-port", str(port)]
        command += ["--host", f"http://127.0.0.1:{called}", "--models", "stub", "--task", "text-classification"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("COHOST_", "LOCUST_"))}
        with (
            (folder / "locust.log").open("wb") as log,
            subprocess.Popen(
                [*command, "--out", str(folder / "out")], cwd=ROOT, env=environment, stdout=log, stderr=log
            ) as process,
        ):
            try:
                state = f"http://127.0.0.1:{port}/stats/requests"
                wait_for(lambda: _answers(state))

                def untouched() -> bool:
                    ready = httpx.get(state, trust_env=False).json()["state"] == "ready"
                    return ready and _calls(called) == 0

                body = urlencode({"user_count": 1, "spawn_rate": 1, "host": f"http://127.0.0.1:{called}"})
                yield Target(port=port, path="/swarm", body=body, untouched=untouched)
            finally:
                process.terminate()


PORTS = [front_door, container, stub, proxy, locust_page]


@pytest.fixture(scope="module", params=PORTS, ids=lambda opened: opened.__name__)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return each port of this project, one after another."""
    with request.param(tmp_path_factory.mktemp("port")) as opened:
        assert opened.untouched()
        yield opened


@pytest.mark.parametrize("host", ["127.0.0.1", EVIL])
def test_every_way_reaches_a_server_that_looks_at_nothing(browser: Browser, site: Running, host: str) -> None:
    """Each attack of these tests reaches a server without checks, so the following tests can fail."""
    with Running(Open) as unchecked:
        attack_from(browser, f"http://{host}:{site.server_port}/", _url(unchecked.server_port, "/x?a=1"), "a=1")
        gets = [path for method, path in unchecked.seen if (method, path) == ("GET", "/x?a=1")]
        posts = [path for method, path in unchecked.seen if method == "POST"]
    # Image, script, stylesheet, frame, form, two fetches, WebSocket and address; four forms and five fetches.
    assert len(gets) >= 9
    assert len(posts) >= 8


@pytest.mark.parametrize("host", ["127.0.0.1", EVIL, "evil.localhost"])
def test_another_site_makes_reads_and_runs_nothing(browser: Browser, site: Running, target: Target, host: str) -> None:
    """A site on another port of this machine, or with a name of its own, gets no access."""
    read = attack_from(browser, f"http://{host}:{site.server_port}/", _url(target.port, target.path), target.body)
    assert read == {}
    assert target.untouched()


def test_a_name_that_was_pointed_here_makes_reads_and_runs_nothing(browser: Browser, target: Target) -> None:
    """A page whose name was redirected to this machine gets only rejections from each port."""
    origin = f"http://{EVIL}:{target.port}"
    read = attack_from(browser, f"{origin}/", f"{origin}{target.path}", target.body)
    assert read
    assert {way: text for way, text in read.items() if not text.startswith("403 ")} == {}
    assert target.untouched()


def test_an_address_that_sends_the_visitor_on_makes_nothing(browser: Browser, site: Running, target: Target) -> None:
    """A typed address that redirects to a port of this project has no effect there."""
    to = urlencode({"to": _url(target.port, target.path)})
    browser.visit(f"http://{EVIL}:{site.server_port}/?{to}")
    assert target.untouched()


def test_locusts_page_itself_works(browser: Browser, tmp_path: Path) -> None:
    """Locust's page works for its user, and its own scripts can start a load test."""
    with locust_page(tmp_path) as page:
        browser.visit(_url(page.port, "/"))
        assert "Locust" in browser.evaluate("document.title")
        start = f"fetch('/swarm', {{method: 'POST', body: new URLSearchParams({json.dumps(page.body)})}})"
        assert browser.evaluate(f"{start}.then(answer => answer.status)") == 200
        wait_for(lambda: not page.untouched())


def _url(port: int, path: str) -> str:
    return f"http://127.0.0.1:{port}{path}"


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _stub_process() -> Iterator[int]:
    command = [sys.executable, "-m", "load_tests.tools.stub"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def _calls(port: int) -> int:
    counts: dict[str, Any] = httpx.get(_url(port, "/counts"), trust_env=False).json()
    return int(counts["calls"])


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False
