"""The meaning of frames to a worker: a call's input and output, and faults of a device that are asked for."""

from __future__ import annotations

import threading
from typing import Any

from local_aws.lmi.frames import Frame
from local_aws.lmi.handler_api import Input, Output

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
