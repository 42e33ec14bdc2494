"""The inbox of custom resources' answers: what S3 and a presigned URL are in the real service.

A handler PUTs its answer to a URL that holds a secret token; whoever waits for that token gets the body.
"""

from __future__ import annotations

import queue
import secrets
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from local_aws.moto_services import read_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

PATH: Final = "/_cohost/cfn-response"
# CloudFormation takes no longer answer (user guide, "Custom resource response objects").
ANSWER_LIMIT_BYTES: Final = 4096


class Responses:
    """Hands out one-time URLs and the answers that arrive at them.

    Args:
        endpoint_url: the front door's address.
    """

    def __init__(self, endpoint_url: Callable[[], str]) -> None:
        self._endpoint_url = endpoint_url
        self._waiting: dict[str, queue.Queue[bytes]] = {}

    def open(self) -> tuple[str, str]:
        """A token and the URL that takes its answer."""
        token = secrets.token_urlsafe(24)
        self._waiting[token] = queue.Queue()
        return token, f"{self._endpoint_url()}{PATH}/{token}"

    def poll(self, token: str, timeout_seconds: float) -> bytes | None:
        """The answer, waiting at most so long; None when there is none."""
        try:
            return self._waiting[token].get(timeout=timeout_seconds) if timeout_seconds > 0 else self._now(token)
        except queue.Empty:
            return None

    def _now(self, token: str) -> bytes:
        return self._waiting[token].get_nowait()

    def close(self, token: str) -> None:
        """Forget a token; a later answer gets 404."""
        self._waiting.pop(token, None)

    async def receive(self, request: Request) -> Response:
        """The route that handlers PUT to."""
        inbox = self._waiting.get(request.path_params["token"])
        if inbox is None:
            return Response("Nobody waits for this answer: it is late, or a second one.", 404)
        inbox.put(await read_body(request.receive))
        return Response(status_code=200)
