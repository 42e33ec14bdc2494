"""A worker's life: load a handler, then answer requests until the container closes the socket.

The first frame from the container is {"model_dir", "entry_point", "function", "async_mode", "environment", "name",
"sock_name"}; the answer {"started": true} means that the handler is imported. Every later frame is a request {"id",
"properties"} with its contents, answered by {"id", "code", "message", "properties"} with contents; or {"fault"}, which
makes every later forward pass of this process go wrong (worker/calls.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws.lmi.frames import Frame, FrameReader, receive
from local_aws.lmi.worker.async_loop import serve_async
from local_aws.lmi.worker.calls import answer_frame, answer_of, break_forward_passes, failure_of, input_of
from local_aws.lmi.worker.service import load_handler

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from local_aws.lmi.handler_api import Input

logger = logging.getLogger(__name__)


def run(connection: socket.socket) -> int:
    """Serves a container's end of `connection`; the exit code is 1 when the handler could not be imported."""
    frames = receive(connection, FrameReader())
    order = next(frames, None)
    if order is None:
        return 0
    os.environ.update(order.head["environment"])
    sys.argv = _arguments(order.head)
    _use_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model_dir = order.head["model_dir"]
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(_WorkerLines(order.head["name"]))
    logging.basicConfig(handlers=[lines], level="INFO", force=True)
    try:
        handler = load_handler(Path(model_dir), order.head["entry_point"], order.head["function"])
    except Exception:
        logger.exception("the handler cannot be imported")
        return 1
    connection.sendall(Frame({"started": True}).pack())
    if order.head["async_mode"]:
        asyncio.run(serve_async(connection, handler, model_dir))
    else:
        _serve(connection, frames, handler, model_dir)
    return 0


def _arguments(order: dict[str, Any]) -> list[str]:
    """The real engine's command line, by which a handler can tell its worker's place; no socket lies there here."""
    return [
        *("djl_python_engine.py", "--sock-type", "unix", "--sock-name", order["sock_name"]),
        *("--model-dir", order["model_dir"], "--entry-point", order["entry_point"] or ""),
        *("--device-id", "-1", "--cluster-size", "1"),
        "--async-mode" if order["async_mode"] else "--no-async-mode",
    ]


class _WorkerLines(logging.Formatter):
    """Formats what a worker logs as the real server's log has it: each line says of which process and model it is.

    Source: DJL Serving 0.36.0 (PyProcess), whose names of models are cut to 15 characters.
    """

    def __init__(self, model: str) -> None:
        super().__init__("%(levelname)s::%(message)s")
        self._start = f"W-{os.getpid()}-{model[:15]}-stdout: "

    def format(self, record: logging.LogRecord) -> str:
        """Put the start before each line of a record, a traceback's too."""
        return "\n".join(self._start + line for line in super().format(record).splitlines())


def _use_threads(count: int) -> None:
    """OMP_NUM_THREADS is read when torch is imported, which was before this process was forked."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def _serve(connection: socket.socket, frames: Iterator[Frame], handler: Callable[[Input], Any], model_dir: str) -> None:
    for frame in frames:
        if "fault" in frame.head:
            break_forward_passes(frame.head["fault"])
            continue
        try:
            output = answer_of(handler(input_of(frame, model_dir)))
        except Exception as error:
            logger.exception("the handler failed")
            output = failure_of(error)
        connection.sendall(answer_frame(frame, output).pack())
