"""The transport of measured calls: each call is one signed request over a persistent connection, without a retry.

boto3 makes about a third as many calls per second on one core (`make bench-load` measures this ratio), so calls are
made with boto3's own signer and a gevent-friendly HTTP client.
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
"""The most connections of the pool; in use are at most as many as calls are under way at the same time.

A connection is opened only when a call finds no free one.
"""

BLOCK_BYTES = 1 << 16
"""The most bytes in one read from a connection.

The token embeddings of a long text are megabytes, and each read takes a turn of gevent's loop.
"""

CONNECT_TIMEOUT_S = 10.0
SERVICE = "sagemaker"
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_original_poll = get_original("select", "poll")


@dataclass(slots=True)
class Exchange:
    """One call and its answer; after a network error, `broken` and `detail` describe the error.

    `sent` is the moment before the first byte is sent, `done` the moment after the whole answer is read, in seconds
    since the epoch.
    """

    sent: float
    done: float
    status: int = 0
    error_type: str = ""
    body: bytes = b""
    broken: Outcome | None = None
    detail: str = ""


class Transport:
    """Sends calls to one target; any number of greenlets of one process can use it at the same time."""

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
        """Return the number of connections that the transport has opened so far."""
        return self._pool.opened

    def send(self, destination: Destination, body: bytes) -> Exchange:
        """Send one call and read its whole answer; a network error is returned in the `Exchange`, not raised."""
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
        """Close all connections that no call is using."""
        self._client.close()

    def _headers(self, destination: Destination, body: bytes) -> dict[str, str]:
        headers = {**_JSON, **destination.headers}
        if self._credentials is None:
            return headers
        request = AWSRequest("POST", self._base + destination.path, headers=headers, data=body)
        SigV4Auth(self._credentials.get_frozen_credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())


class _Counting:
    """A mixin of both connection pools that counts opened connections and checks if a free connection still works.

    Unlike the library's own check, this check works with any number of open files.
    """

    opened = 0

    def _create_socket(self) -> Any:  # gevent replaces the socket class of the library
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
    """The pool of connections without TLS."""


class _TlsPool(_Counting, SSLConnectionPool):
    """The pool of connections over TLS."""


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
