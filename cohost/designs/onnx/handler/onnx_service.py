"""One worker's service: the first call loads the model, and later calls are answered in the order of arrival.

Answers have the form that DJL Serving 0.36.0 expects of an asynchronous handler: `Output.binary_encode` of "data" and
"last". An error's answer also has "code" and "error", which become the HTTP status and its reason.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cohost.handler.cohost_errors import HandlerError, Output, refusal_of
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_request import read_call

from .onnx_model import OnnxModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.handler.cohost_request import Input

logger = logging.getLogger(__name__)

_TRUNCATED = "cohost-truncated"
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


class OnnxService:
    """The service of one model; `output` is DJL Serving's class of answers."""

    def __init__(self, output: type[Output]) -> None:
        self._output = output
        # One thread: onnxruntime uses all cores for one pass, and waiting calls are served in the order of arrival.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cohost-onnx")
        self._model: OnnxModel | None = None

    async def handle(self, inputs: Input) -> Output:
        """Answer one call.

        Raises:
            ValueError: on the first call, when the options or the model are not fit to serve.
        """
        if self._model is None:
            self.begin(self.prepare(inputs.get_properties()))
        assert self._model is not None  # noqa: S101 - `begin` has set it
        if inputs.is_empty():
            return self._output()
        try:
            plan = self._model.task.plan(read_call(inputs))
            text, cut = await asyncio.get_running_loop().run_in_executor(self._thread, self._model.answer, plan)
        except HandlerError as error:
            return refusal_of(self._output, error)
        output = self._output()
        output.add_property("Content-Type", "application/json")
        output.add(self._output.binary_encode({"data": text, "last": True}))
        if cut:
            output.add_property(_TRUNCATED, str(cut))
            output.add_property(_CUSTOM_ATTRIBUTES, f"{_TRUNCATED}={cut}")
        return output

    def prepare(self, properties: Mapping[str, Any]) -> OnnxModel:
        """Load the model in the calling thread.

        Raises:
            ValueError: the options or the model are not fit to serve.
        """
        options = read_options(properties)
        if options.device_id is not None:
            logger.warning(
                "the GPU that the server gave this worker is not used, since ONNX archives are for CPUs; fix: deploy "
                "them on a CPU instance, or the model with handler batched"
            )
        model = OnnxModel(options)
        logger.info("%s: %s, %s tokens, onnxruntime", options.model, options.task, options.max_length)
        return model

    def begin(self, model: OnnxModel) -> None:
        """Start serving a model."""
        self._model = model

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
