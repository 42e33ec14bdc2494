"""uvicorn's HTTP/1.1 on h11, with each answer's head and body in one write.

uvicorn writes them apart: two system calls, two segments, and for the client two reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn import Config

HEAD_LIMIT = 65536  # bytes of a request's head; h11's own default is 16 KiB


class OneWriteConnection(h11.Connection):
    """Holds an answer's head until its body comes."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - h11's own, passed on
        super().__init__(*arguments)
        self._head = b""

    def send(self, event: Any) -> Any:  # noqa: ANN401 - one method of many signatures
        """The bytes of an event; none yet for a head."""
        sent = super().send(event)
        if isinstance(event, h11.Response):
            self._head = sent or b""
            return b""
        if sent is None:
            return None
        head, self._head = self._head, b""
        return head + sent


class OneWriteProtocol(H11Protocol):
    """A connection of a server, which makes `connection_type`s."""

    connection_type: type[OneWriteConnection] = OneWriteConnection

    def __init__(self, config: Config, **arguments: Any) -> None:  # noqa: ANN401 - uvicorn's own, passed on
        super().__init__(config, **arguments)
        self.conn = self.connection_type(h11.SERVER, config.h11_max_incomplete_event_size or HEAD_LIMIT)
