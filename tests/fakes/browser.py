"""A real browser for the tests that look at pages, led through Chromium's DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import websocket

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--window-size=1300,2400",
]


class Browser:
    """A page in headless Chromium, controlled by the DevTools protocol; `events` are the received events."""

    def __init__(self, folder: Path, *flags: str) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            reason = "pages are to be seen in a browser, and none is installed; fix: install the package chromium"
            # CI can install one, so there a missing browser is a fault.
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        self.events: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        command = [program, *FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = websocket.create_connection(self._page(folder / "DevToolsActivePort"), timeout=60)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(self, file: Path) -> None:
        """Open a page, and wait until it is loaded and its late requests are sent."""
        self.visit(file.resolve().as_uri())
        self.evaluate("new Promise(done => setTimeout(done, 500))")

    def visit(self, url: str) -> None:
        """Open an address like a typed one, and wait until its page is loaded."""
        self.events.clear()
        self._send("Page.navigate", url=url)
        self._wait_until_loaded()

    def visit_page_of_anothers(self, url: str, page: str) -> None:
        """Open a page with given content at an address of another site; the page's requests go to real servers.

        That is what a browser meets whose name server gives an attacker's address first and this machine's afterwards.
        """
        self.events.clear()
        self._send("Fetch.enable", patterns=[{"urlPattern": url}])
        # Its answer comes when the page has, which is handed out below.
        self._post("Page.navigate", url=url)
        while not (asked := [event for event in self.events if event["method"] == "Fetch.requestPaused"]):
            self._receive()
        body = base64.b64encode(page.encode()).decode()
        header = {"name": "Content-Type", "value": "text/html"}
        request = asked[0]["params"]["requestId"]
        self._send("Fetch.fulfillRequest", requestId=request, responseCode=200, responseHeaders=[header], body=body)
        self._wait_until_loaded()
        self._send("Fetch.disable")

    def leave(self, script: str) -> None:
        """Run a script that opens another page, and wait until the page is loaded."""
        self.events.clear()
        self._send("Runtime.evaluate", expression=script)
        self._wait_until_loaded()

    def evaluate(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def as_wide_as_a_phone(self) -> None:
        """Show pages as a phone does."""
        self._send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)

    def close(self) -> None:
        """End the browser."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(60)

    def _wait_until_loaded(self) -> None:
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def _page(self, port_file: Path) -> str:
        deadline = time.monotonic() + 60
        while not (port_file.is_file() and port_file.read_text().count("\n")):
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.1)
        port = port_file.read_text().splitlines()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        return str(pages[0]["webSocketDebuggerUrl"])

    def _send(self, method: str, **params: Any) -> Any:
        number = self._post(method, **params)
        while (message := self._receive()).get("id") != number:
            pass
        assert "error" not in message, message
        return message["result"]

    def _post(self, method: str, **params: Any) -> int:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return number

    def _receive(self) -> dict[str, Any]:
        message = json.loads(self._socket.recv())
        if "method" in message:
            self.events.append(message)
        return dict(message)
