"""The container's HTTP API as an ASGI application, which passes requests to routes and turns errors into answers."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from starlette.requests import Request

from local_aws.kit.bodies import MIB, BodyMemory, BodyTooLargeError, BusyError, CallerLeftError
from local_aws.lmi.answers import Unanswered
from local_aws.lmi.errors import Fault, ResourceNotFound, ServerBusy
from local_aws.lmi.server.http import REASON_HEADER, Reply, connection_of, fault_reply, new_request_id
from local_aws.lmi.server.inference import ReplyCache, infer, ping
from local_aws.lmi.server.management import break_worker, counters, manage, worker_processes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from local_aws.lmi.models.registry import Registry


logger = logging.getLogger(__name__)

# Matched against path and query as sent: "/models/m/invoke?x=1" is not an inference route, as in the real server.
_INFERENCE = re.compile(r"/(ping|invocations|predictions|v1/chat/completions)([/?].*)?|/models/.+/invoke", re.DOTALL)
_MANAGEMENT = re.compile(r"/(models|server)([/?].*)?", re.DOTALL)
# This project's own paths; the real server has its counters at /server/metrics, only if SERVING_PROMETHEUS is true.
COUNTERS_PATH = "/_cohost/metrics"
WORKERS_PATH = "/_cohost/workers"
FAULTS_PATH = "/_cohost/worker-faults"
_LARGEST_BODY = 64 * MIB
# The bodies of all requests at once. The real server has no such limit, and dies when its memory is full.
_BODIES_BYTES = 256 * MIB
_BODIES_WAIT_S = 30.0
_MOST_REQUESTS = 4096


class LmiApp:
    """The ASGI application of a container; it turns every exception into an error answer."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache = ReplyCache()
        self._memory = BodyMemory(total_bytes=_BODIES_BYTES, wait_s=_BODIES_WAIT_S, most_requests=_MOST_REQUESTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; the server that runs this application sends no other kind of scope."""
        request = Request(scope, receive)
        request_id = new_request_id(request.headers.get("x-request-id"))
        try:
            async with self._memory.request() as incoming:
                body = await incoming.read(receive, request.headers, _LARGEST_BODY)
                reply = await self._answer(request, body, request_id)
        except BodyTooLargeError:
            await _refuse_body(send)
        except BusyError as busy:
            await fault_reply(ServerBusy(str(busy))).send(send, request_id)
        except CallerLeftError:
            return
        except Unanswered:
            if (connection := connection_of(scope)) is not None:
                connection.reset()
        else:
            await reply.send(send, request_id)

    async def _answer(self, request: Request, body: bytes, request_id: str) -> Reply:
        try:
            return await self._dispatch(request, body, request_id)
        except Fault as fault:
            return fault_reply(fault)
        except Unanswered:
            raise
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.url.path)
            return fault_reply(Fault(f"{type(error).__name__}: {error}"))

    async def _dispatch(self, request: Request, body: bytes, request_id: str) -> Reply:
        sent = request.scope["raw_path"].decode("latin-1")
        if request.url.query:
            sent += f"?{request.url.query}"
        segments = request.scope["path"].rstrip("/").split("/")
        if _INFERENCE.fullmatch(sent):
            if segments[1] == "ping":
                return ping(self._registry)
            return await infer(self._registry, self._cache, request, segments, body, request_id)
        if _MANAGEMENT.fullmatch(sent):
            return await manage(self._registry, request, segments, body)
        return await self._own_route(request, body)

    async def _own_route(self, request: Request, body: bytes) -> Reply:
        route = (request.method, request.scope["path"])
        if route == ("GET", COUNTERS_PATH):
            return counters(self._registry)
        if route == ("GET", WORKERS_PATH):
            return worker_processes(self._registry)
        if route == ("PUT", FAULTS_PATH):
            return await break_worker(self._registry, body)
        raise ResourceNotFound


async def _refuse_body(send: Send) -> None:
    """Answer 413 for a body that is too large, without the headers that other answers have (recording 02v_tf590)."""
    reason = (REASON_HEADER.encode(), b"Request Entity Too Large")
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0"), reason]})
    await send({"type": "http.response.body", "body": b""})
