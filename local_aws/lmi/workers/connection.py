"""What a container and a worker process say to each other: frames on a stream socket.

A frame is two unsigned 32-bit lengths (network order), a JSON head of the first length and a body of the second. The
body is the concatenation of the frame's contents, whose keys and sizes the head lists, so binary data travels as is.

The meaning of frames to a worker: a call's input and output, and faults of a device that are asked for.
"""

from __future__ import annotations

import json
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence


Content = tuple["str | None", bytes]

_LENGTHS = struct.Struct("!II")
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `head` holds plain JSON values, `contents` the (key, bytes) pairs that go with it."""

    head: dict[str, Any]
    contents: Sequence[Content] = field(default_factory=tuple)

    def pack(self) -> bytes:
        """The frame as bytes for the socket."""
        layout = [[key, len(value)] for key, value in self.contents]
        head = json.dumps([self.head, layout]).encode()
        body = [value for _, value in self.contents]
        return b"".join([_LENGTHS.pack(len(head), sum(map(len, body))), head, *body])


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Takes the next bytes of the stream and yields each frame that they complete."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if len(self._buffer) < _LENGTHS.size:
            return None
        head_size, body_size = _LENGTHS.unpack_from(self._buffer)
        end = _LENGTHS.size + head_size + body_size
        if len(self._buffer) < end:
            return None
        frame = _parse(bytes(self._buffer[_LENGTHS.size : end]), head_size)
        del self._buffer[:end]
        return frame


def receive(connection: socket.socket, reader: FrameReader) -> Iterator[Frame]:
    """The frames that a blocking socket brings, until its other end closes."""
    while data := connection.recv(_CHUNK):
        yield from reader.feed(data)


def _parse(data: bytes, head_size: int) -> Frame:
    head, layout = json.loads(data[:head_size])
    contents: list[Content] = []
    start = head_size
    for key, size in layout:
        contents.append((key, data[start : start + size]))
        start += size
    return Frame(head, contents)


# What a broken device makes torch raise, in every later call of the process.
_LOST_DEVICE = "CUDA error: an illegal memory access was encountered"
_OUT_OF_MEMORY = 507
_OUT_OF_MEMORY_TYPES = {"OutOfMemoryError", "MemoryError"}


def input_of(frame: Frame, model_dir: str) -> Input:
    """A request frame as a handler sees it, with what the engine adds (recorded: 21_handler_properties)."""
    inputs = Input()
    inputs.properties = frame.head["properties"] | {"cluster_size": "1", "device_id": "-1", "model_dir": model_dir}
    inputs.function_name = inputs.properties.get("handler")
    for key, value in frame.contents:
        inputs.content.add(key, value)
    return inputs


def answer_of(result: Any) -> Output:  # noqa: ANN401 - whatever a handler returned
    """A handler's result: None is "no content", anything that is no Output an error."""
    if result is None:
        return Output(code=204, message="No content")
    return result if isinstance(result, Output) else Output().error(f"Invalid output type: {type(result)}")


def failure_of(error: Exception, message: str = "invoke handler failure") -> Output:
    """The answer to a call whose handler raised."""
    if type(error).__name__ in _OUT_OF_MEMORY_TYPES:
        return Output(code=_OUT_OF_MEMORY, message=str(error))
    return Output().error(str(error), message=message)


def answer_frame(request: Frame, output: Output) -> Frame:
    """An output on its way to the container."""
    head = {
        "id": request.head["id"],
        "code": output.code,
        "message": output.message,
        "properties": {str(key): str(value) for key, value in output.properties.items()},
    }
    return Frame(head, list(zip(output.content.keys, output.content.values, strict=True)))


def break_forward_passes(fault: str) -> None:
    """Have torch run into `fault` ("hang" or "lose_device") before each forward pass from now on.

    The handler knows nothing of it: torch calls what is registered here before each module's `forward`. The thread of a
    pass that hangs waits for ever, with Python's lock released, so other threads go on.
    """
    from torch.nn.modules.module import register_module_forward_pre_hook  # noqa: PLC0415 - only here is it needed

    register_module_forward_pre_hook({"hang": _hang, "lose_device": _lose_device}[fault])


def _hang(*_: Any) -> None:  # noqa: ANN401 - torch's module and its arguments
    threading.Event().wait()


def _lose_device(*_: Any) -> None:  # noqa: ANN401 - torch's module and its arguments
    raise RuntimeError(_LOST_DEVICE)
