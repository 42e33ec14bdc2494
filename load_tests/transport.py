"""The measured call: one signed request over a persistent connection, without a retry.

boto3 makes about a third as many calls per second on one core (`make bench-load` measures it), so a call is made here
with boto3's own signer and a gevent-friendly HTTP client.
"""

from __future__ import annotations

import select
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent.socket
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from gevent.monkey import get_original
from geventhttpclient import HTTPClient
from geventhttpclient.connectionpool import ConnectionPool, SSLConnectionPool
from geventhttpclient.response import HTTPConnectionClosed, HTTPParseError

from cohost.report.samples import Outcome
from load_tests.stage import now

if TYPE_CHECKING:
    from load_tests.targets import Destination, Resolved

MOST_CONNECTIONS = 10_000
"""The pool's bound. Connections are opened when a call finds none free, so there are as many as calls under way."""

BLOCK_BYTES = 1 << 16
"""Read at once: an embedding of a long text is megabytes, and each read of it costs a turn of the loop."""

CONNECT_TIMEOUT_S = 10.0
SERVICE = "sagemaker"
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_original_poll = get_original("select", "poll")


@dataclass(slots=True)
class Exchange:
    """One call: the moments of its first byte sent and of its answer read, and the answer or the error instead."""

    sent: float
    done: float
    status: int = 0
    error_type: str = ""
    body: bytes = b""
    broken: Outcome | None = None
    detail: str = ""


class Transport:
    """Sends calls to one target. Safe for any number of greenlets of one process."""

    def __init__(self, resolved: Resolved, timeout_s: float) -> None:
        self._credentials = resolved.credentials
        self._region = resolved.target.region or ""
        url = urllib.parse.urlsplit(resolved.target.url)
        self._base = f"{url.scheme}://{url.netloc}"
        self._client = HTTPClient.from_url(self._base, headers={"User-Agent": "lmi-cohost"}, block_size=BLOCK_BYTES)
        self._pool = _pool(url, timeout_s)
        # The client's own pool neither counts connections nor supports more than a thousand of them.
        self._client._connection_pool = self._pool  # noqa: SLF001

    @property
    def connections_opened(self) -> int:
        """Return the number of connections opened so far."""
        return self._pool.opened

    def send(self, destination: Destination, body: bytes) -> Exchange:
        """Send one call and read its whole answer; never raises for errors of the network."""
        headers = self._headers(destination, body)
        exchange = Exchange(sent=now(), done=0.0)
        try:
            response = self._client.request("POST", destination.path, body, headers)
            exchange.body = bytes(response.read())
            exchange.status = response.status_code
            exchange.error_type = str(response.get("x-amzn-errortype", ""))
        except (TimeoutError, gevent.socket.timeout) as error:
            exchange.broken, exchange.detail = Outcome.TIMED_OUT, str(error)
        except (OSError, HTTPConnectionClosed, HTTPParseError) as error:
            exchange.broken, exchange.detail = Outcome.CONNECTION, f"{type(error).__name__}: {error}"
        exchange.done = now()
        return exchange

    def close(self) -> None:
        """Close all connections that are free."""
        self._client.close()

    def _headers(self, destination: Destination, body: bytes) -> dict[str, str]:
        headers = {**_JSON, **destination.headers}
        if self._credentials is None:
            return headers
        request = AWSRequest("POST", self._base + destination.path, headers=headers, data=body)
        SigV4Auth(self._credentials.get_frozen_credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())


class _Counting:
    """Extends both pools by a count, and by a check of a free connection that works with any number of files."""

    opened = 0

    def _create_socket(self) -> Any:  # the library's socket, which is gevent's
        self.opened += 1
        return super()._create_socket()  # type: ignore[misc]

    def _create_tcp_socket(self, family: int, socktype: int, protocol: int) -> Any:
        sock: Any = super()._create_tcp_socket(family, socktype, protocol)  # type: ignore[misc]
        # TCP_NODELAY, as in boto3: otherwise the last part of a long body waits up to 40 ms for the acknowledgement
        # of the parts before it.
        sock.setsockopt(gevent.socket.IPPROTO_TCP, gevent.socket.TCP_NODELAY, 1)
        return sock

    def _is_socket_alive(self, sock: Any) -> bool:
        # The library uses select(), which fails from the 1024th open file on, and would open a connection per call.
        if sock is None or sock.fileno() < 0:
            return False
        poll = _original_poll()
        poll.register(sock.fileno(), select.POLLIN)
        return not poll.poll(0)


class _PlainPool(_Counting, ConnectionPool):
    """Counted plain connections."""


class _TlsPool(_Counting, SSLConnectionPool):
    """Counted TLS connections."""


def _pool(url: urllib.parse.SplitResult, timeout_s: float) -> _PlainPool | _TlsPool:
    tls = url.scheme == "https"
    host, port = url.hostname or "", url.port or (443 if tls else 80)
    kind = _TlsPool if tls else _PlainPool
    return kind(
        host,
        port,
        host,
        port,
        size=MOST_CONNECTIONS,
        connection_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
        network_timeout=timeout_s,
    )
