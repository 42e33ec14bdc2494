"""The ports that a load test opens on this machine only: of Locust's web page, and of the master for its workers.

Locust's own defaults are all interfaces, without a login, and its page answers every origin (flask_cors): anybody
who reaches the page can start load on an endpoint that costs money. In this load test both ports listen on 127.0.0.1
unless `--web-host` or `--master-bind-host` states otherwise, and the page answers only requests of the page itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cohost.callers import foreign_caller

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from locust.web import WebUI

    Environ = dict[str, Any]
    StartResponse = Callable[..., Any]
    Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

HOME: Final = "127.0.0.1"
_OPTIONS: Final = {
    "web_host": "Host to bind the web interface to. Defaults to 127.0.0.1 ('*' for all interfaces).",
    "master_bind_host": "IP address for the master to listen on. Defaults to 127.0.0.1 ('*' for other machines).",
}
_FIELDS: Final = {"host": "HTTP_HOST", "origin": "HTTP_ORIGIN", "sec-fetch-site": "HTTP_SEC_FETCH_SITE"}


def stay_at_home(parser: argparse.ArgumentParser) -> None:
    """Set the default address of both ports to 127.0.0.1; an option, variable or file of Locust overrides it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if action.dest in _OPTIONS:
            action.default = HOME
            action.help = _OPTIONS[action.dest]


def guard(page: WebUI, web_host: str) -> None:
    """Reject requests that a page of another origin sends with 403, before Locust sees them.

    If the page listens on 127.0.0.1, a request with a foreign host name is rejected too, since another site may have
    pointed that name to 127.0.0.1. The host names of an address that the user has chosen are not known, so all are
    accepted.
    """
    flask: Any = page.app
    app: Wsgi = flask.wsgi_app

    def guarded(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        reason = _foreign(environ, any_host=web_host != HOME)
        if reason is None:
            return app(environ, start_response)
        body = reason.encode()
        start_response("403 Forbidden", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    flask.wsgi_app = guarded


def _foreign(environ: Mapping[str, Any], *, any_host: bool) -> str | None:
    headers = {name: str(environ[key]) for name, key in _FIELDS.items() if key in environ}
    host = headers.get("host", "")
    if headers.get("origin") in {f"http://{host}", f"https://{host}"}:
        # The page's own scripts send Origin too, because browsers send it with every POST.
        del headers["origin"]
    return foreign_caller({**headers, "host": HOME} if any_host else headers)
