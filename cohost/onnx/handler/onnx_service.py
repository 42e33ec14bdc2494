"""One worker's service: the first call loads the model, each other one is answered in the order of arrival.

Answers have the form that DJL Serving 0.36.0 wants of an asynchronous handler: `Output.binary_encode` of "data" and
"last", and on an error of "code" and "error" too, which become the status and its reason.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from cohost.handler.cohost_errors import HandlerError, one_line
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_request import read_call

from .onnx_model import OnnxModel

if TYPE_CHECKING:
    from cohost.handler.cohost_request import Input

logger = logging.getLogger(__name__)

_TRUNCATED = "cohost-truncated"
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


class Output(Protocol):
    """What this handler uses of `djl_python.Output`."""

    def add_property(self, key: str, val: Any) -> Any: ...  # noqa: ANN401, D102 - as the server's
    def add(self, value: Any) -> Any: ...  # noqa: ANN401, D102
    @staticmethod
    def binary_encode(data: Any) -> bytearray: ...  # noqa: ANN401, D102


class OnnxService:
    """Serves one model; `output` is the server's class of answers."""

    def __init__(self, output: type[Output]) -> None:
        self._output = output
        # One thread: onnxruntime uses all cores for one pass, and what waits for it is served first in, first out.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cohost-onnx")
        self._model: OnnxModel | None = None

    async def handle(self, inputs: Input) -> Output:
        """Answers one call.

        Raises:
            ValueError: on the first call, when the options or the model are not fit to serve.
        """
        if self._model is None:
            options = read_options(inputs.get_properties())
            self._model = OnnxModel(options)
            logger.info("%s: %s, %s tokens, onnxruntime", options.model, options.task, options.max_length)
        if inputs.is_empty():
            return self._output()
        try:
            plan = self._model.task.plan(read_call(inputs))
            text, cut = await asyncio.get_running_loop().run_in_executor(self._thread, self._model.answer, plan)
        except HandlerError as error:
            return self._reply({"data": "", "last": True, "code": error.status, "error": one_line(str(error))})
        output = self._reply({"data": text, "last": True})
        if cut:
            output.add_property(_TRUNCATED, str(cut))
            output.add_property(_CUSTOM_ATTRIBUTES, f"{_TRUNCATED}={cut}")
        return output

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()

    def _reply(self, parts: dict[str, object]) -> Output:
        output = self._output()
        output.add_property("Content-Type", "application/json")
        output.add(self._output.binary_encode(parts))
        return output
