"""Requests that a web page can send to a port of this machine, and servers for the attack."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from fakes.browser import Browser

PAGE: Final = "<!doctype html><title>an attacker's page</title><body></body>"
# Each way sends `url` (a GET) or `url` with `body` (a POST) and settles when it is answered or refused. What a page
# could read comes back as text; all that it may not read is "".
IN_THE_PAGE: Final = """
(async (url, body) => {
    const named = (tag, values) => Object.assign(document.createElement(tag), values);
    const shown = element => new Promise(done => {
        element.onload = element.onerror = () => done("");
        document.body.append(element);
    });
    const framed = (values, fields) => new Promise(done => {
        const frame = named("iframe", {name: "f" + Math.random()});
        document.body.append(frame);
        const form = named("form", {action: url, target: frame.name, ...values});
        for (const [name, value] of fields) form.append(named("input", {type: "hidden", name, value}));
        document.body.append(form);
        frame.onload = () => done("");
        form.submit();
    });
    const fetched = (options) => fetch(url, {cache: "no-store", ...options})
        .then(async answer => answer.type === "opaque" ? "" : answer.status + " " + await answer.text(), () => "");
    const fields = [...new URLSearchParams(body)];
    const ways = {
        image: () => shown(named("img", {src: url})),
        script: () => shown(named("script", {src: url})),
        stylesheet: () => shown(named("link", {rel: "stylesheet", href: url})),
        frame: () => shown(named("iframe", {src: url})),
        "form, GET": () => framed({method: "GET"}, [...new URL(url).searchParams]),
        "form, POST": () => framed({method: "POST"}, fields),
        "form, plain text": () => framed({method: "POST", enctype: "text/plain"}, fields),
        "form, parts": () => framed({method: "POST", enctype: "multipart/form-data"}, fields),
        "fetch, GET": () => fetched({}),
        "fetch, no-cors GET": () => fetched({mode: "no-cors"}),
        "fetch, no-cors POST": () => fetched({mode: "no-cors", method: "POST", body}),
        "fetch, no-cors form": () => fetched({mode: "no-cors", method: "POST", body: new URLSearchParams(body)}),
        "fetch, after the page": () => fetched({mode: "no-cors", method: "POST", body, keepalive: true}),
        "fetch, POST": () => fetched({method: "POST", body}),
        "fetch, JSON": () => fetched({method: "POST", body, headers: {"Content-Type": "application/json"}}),
        "fetch, PUT": () => fetched({method: "PUT", body}),
        "fetch, DELETE": () => fetched({method: "DELETE"}),
        WebSocket: () => new Promise(done => {
            const socket = new WebSocket(url.replace(/^http/, "ws"));
            socket.onopen = () => done("opened");
            socket.onclose = () => done("");
        }),
    };
    const results = {};
    for (const [name, way] of Object.entries(ways)) results[name] = await way();
    return results;
})
"""
# Ways that take the browser from the page to `url`.
AWAY: Final = {
    "address": "(url, body) => { location = url; }",
    "form, POST": """
        (url, body) => {
            const form = Object.assign(document.createElement("form"), {action: url, method: "POST"});
            for (const [name, value] of new URLSearchParams(body))
                form.append(Object.assign(document.createElement("input"), {type: "hidden", name, value}));
            document.body.append(form);
            form.submit();
        }
    """,
}


class Redirecting(BaseHTTPRequestHandler):
    """The address of another site that redirects its visitor."""

    def do_GET(self) -> None:
        """`?to=URL`."""
        self.send_response(302)
        self.send_header("Location", parse_qs(urlsplit(self.path).query)["to"][0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no log."""


class Open(BaseHTTPRequestHandler):
    """A server without checks, which answers every request."""

    def handle_one_request(self) -> None:
        """Answer a request of any method."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        assert isinstance(self.server, Running)
        self.server.seen.append((self.command, self.path))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Write no log."""


class Running(ThreadingHTTPServer):
    """A server in a thread during a `with` block; `seen` has the methods and paths of its requests."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.seen: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def __exit__(self, *arguments: object) -> None:
        """Stop the server."""
        self.shutdown()
        self._thread.join()
        super().__exit__(*arguments)


def attack_from(browser: Browser, page: str, url: str, body: str) -> dict[str, str]:
    """Try every way of attack from a page at the address `page`, and return the readable answers by way."""
    arguments = f"({json.dumps(url)}, {json.dumps(body)})"
    browser.visit_page_of_anothers(page, PAGE)
    read: dict[str, str] = browser.evaluate(f"{IN_THE_PAGE}{arguments}")
    for way in AWAY.values():
        browser.visit_page_of_anothers(page, PAGE)
        browser.leave(f"({way}){arguments}")
    return {way: text for way, text in read.items() if text}
