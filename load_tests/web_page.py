"""Let Locust's web page, and its master's port for workers, listen on this machine only.

By default, Locust listens on all interfaces without a login, and its page answers requests of every origin
(flask_cors). Then anybody who reaches the page can start load on an endpoint that costs money. In this load test, both
ports listen on 127.0.0.1 unless `--web-host` or `--master-bind-host` names another address, and the page refuses
requests that pages of other origins send.
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
    """Set 127.0.0.1 as the default of --web-host and --master-bind-host; Locust's options can override it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if action.dest in _OPTIONS:
            action.default = HOME
            action.help = _OPTIONS[action.dest]


def guard(page: WebUI, web_host: str) -> None:
    """Answer requests from pages of other origins with 403, before Locust sees them.

    If the page listens on 127.0.0.1, a request with a foreign host name is rejected too, since another site may have
    pointed that name to 127.0.0.1. If the user has chosen another address, its host names are not known, so every host
    name is accepted.
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
