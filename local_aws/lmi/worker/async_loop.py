"""The loop of a worker with `option.async_mode=true`: each request is handed to the handler at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from local_aws.lmi.frames import Frame, FrameReader
from local_aws.lmi.worker.calls import answer_frame, answer_of, break_forward_passes, failure_of, input_of

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable

    from local_aws.lmi.handler_api import Input, Output

logger = logging.getLogger(__name__)

_CHUNK = 1 << 18
_FAILURE = "service.invoke_handler_async() failure"


async def serve_async(connection: socket.socket, handler: Callable[[Input], Awaitable[Any]], model_dir: str) -> None:
    """Answers requests as the handler finishes them, in whatever order, until the socket closes."""
    reader, writer = await asyncio.open_connection(sock=connection)
    frames = FrameReader()
    running: set[asyncio.Task[None]] = set()
    while data := await reader.read(_CHUNK):
        for frame in frames.feed(data):
            if "fault" in frame.head:
                break_forward_passes(frame.head["fault"])
                continue
            task = asyncio.create_task(_answer(writer, frame, handler, model_dir))
            running.add(task)
            task.add_done_callback(running.discard)


async def _answer(
    writer: asyncio.StreamWriter, frame: Frame, handler: Callable[[Input], Awaitable[Any]], model_dir: str
) -> None:
    async for output in _outputs(handler, input_of(frame, model_dir)):
        writer.write(answer_frame(frame, output).pack())


async def _outputs(handler: Callable[[Input], Awaitable[Any]], inputs: Input) -> AsyncIterator[Output]:
    """What a handler answers: one output, or several where it returned an asynchronous generator."""
    try:
        result = await handler(inputs)
        if hasattr(result, "__aiter__"):
            async for part in result:
                yield part
        else:
            yield answer_of(result)
    except Exception as error:
        logger.exception("the handler failed")
        yield failure_of(error, _FAILURE)
