"""Control access to this project's local servers: programs of the same user may call them, but web pages may not.

A caller of one of these servers can run code on this machine, such as a Lambda function or a model's `model.py`. A
server that listens on 127.0.0.1 cannot be reached from other machines, but it can be reached by the browser on this
machine, which sends requests on behalf of any page that it shows. Two checks exclude web pages: a request must not have
the headers that browsers add (`foreign_caller`), and the request must have a token that only the user's programs can
read (`Guard`).

Sources: Fetch Metadata Request Headers (W3C); Fetch (WHATWG), "Origin header" and "forbidden request-header".
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
    from pathlib import Path

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]
    Refuse = Callable[[str, Send], Awaitable[None]]

TOKEN_HEADER: Final = "x-cohost-token"  # noqa: S105 - a header's name
TOKEN_VARIABLE: Final = "COHOST_CONTAINER_TOKEN"  # noqa: S105 - a variable's name
# Accepted values of Sec-Fetch-Site: "same-origin" is sent by a page that the local server itself delivered, "none" for
# an address that the user typed. A page on another port of this machine sends "same-site" and is rejected: the user did
# not write that page.
_OWN_SITES: Final = ("none", "same-origin")
_OWN_HOST: Final = re.compile(r"(127\.0\.0\.1|\[::1\]|([\w.-]+\.)?localhost)(:\d+)?", re.IGNORECASE | re.ASCII)


def foreign_caller(headers: Mapping[str, str]) -> str | None:
    """Return the reason why a request counts as sent by a web page; None if a program sent it.

    The header names in `headers` are in lower case.

    No SDK sends Origin or Sec-Fetch-Site. Browsers send Sec-Fetch-Site with every request, and Origin with each POST
    and each request whose answer a page may read. A page can use a host name that resolves to 127.0.0.1 as its own
    origin ("DNS rebinding"), but the Host header then contains that name.
    """
    if "origin" in headers:
        return f"Origin {headers['origin']}: web pages may not call this server; allowed: no Origin."
    site = headers.get("sec-fetch-site", "none")
    if site not in _OWN_SITES:
        return f"Sec-Fetch-Site {site}: web pages may not call this server; allowed: {', '.join(_OWN_SITES)}."
    host = headers.get("host", "")
    if _OWN_HOST.fullmatch(host) is None:
        return f"Host {host}: this server answers to 127.0.0.1 and localhost only."
    return None


def new_token() -> str:
    """Return a new token for one start of a local server: 43 random characters that need no quotes in a shell."""
    return secrets.token_urlsafe(32)


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step, so that no process ever sees an incomplete file.

    Other users can never open the file, not even right after its creation, because it is created with its final mode.
    """
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)
    partial.replace(file)


class Guard:
    """ASGI middleware that passes on a request only if it carries `token` and does not come from a web page.

    Requests over a Unix socket are passed on unchecked: file permissions already limit the socket to the user. The
    header with the token is removed before the request is passed on to the guarded application `app`.
    """

    def __init__(self, app: App, token: str, refuse: Refuse) -> None:
        """Guard `app`; `refuse(reason, send)` answers a rejected request before its body is read."""
        self._app = app
        self._token = token.encode()
        self._refuse = refuse

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass one request on to the application, or reject the request."""
        reason = None if _over_unix_socket(scope) else self._reason(scope["headers"])
        if reason is not None:
            await self._refuse(reason, send)
            return
        kept = [(name, value) for name, value in scope["headers"] if name != TOKEN_HEADER.encode()]
        await self._app({**scope, "headers": kept}, receive, send)

    def _reason(self, fields: Iterable[tuple[bytes, bytes]]) -> str | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
        foreign = foreign_caller(headers)
        if foreign is not None:
            return foreign
        sent = headers.get(TOKEN_HEADER, "").encode("latin-1")
        if secrets.compare_digest(sent, self._token):
            return None
        return (
            f"{TOKEN_HEADER}: {'not the token of this start' if sent else 'missing'}; allowed: the token that this "
            "server was started with; fix: send it in this header."
        )


def _over_unix_socket(scope: Message) -> bool:
    """Return True for a request over a Unix socket; uvicorn then sets `server` to the socket's path and None."""
    server = scope.get("server")
    return server is not None and server[1] is None
