"""The stock handler: parses requests, runs a Hugging Face pipeline over all their inputs, answers in their order.

It hands the pipeline a list without a batch size, whose default is 1, so texts go through the model one by one; one bad
item, or two requests with different `parameters`, fail the whole batch. Both are the real handler's behaviour.
Source: DJL Serving 0.36.0 (huggingface handler), recorded (tests/data/djl_vectors).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.handler_api.request_io import TextInput
from local_aws.lmi.stock.decoding import decode
from local_aws.lmi.stock.encoding import answer_format, encode
from local_aws.lmi.stock.pipelines import Streaming, load_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

_SERVER_SETTING = "output_formatter"
_PARSING_FAILED = "Input Parsing failed. Ensure that the request payload is valid. "

logger = logging.getLogger(__name__)


class StockHandler:
    """One model's handler; `formatter` (Input, **settings) → TextInput replaces the parsing of requests."""

    def __init__(self, formatter: Callable[..., Any] | None = None) -> None:
        self._formatter = formatter or _parse
        self._pipeline: Callable[..., Any] | Streaming | None = None

    def handle(self, inputs: Input) -> Output | None:
        """The first call loads the model; every other one answers a request or a batch."""
        if self._pipeline is None:
            self._pipeline = load_pipeline(inputs.get_properties())
        return None if inputs.is_empty() else self._infer(inputs, self._pipeline)

    def _infer(self, inputs: Input, pipeline: Callable[..., Any] | Streaming) -> Output:
        batch = inputs.get_batches()
        parsed = [self._parsed(request) for request in batch]
        outputs = Output()
        if all(isinstance(item, str) for item in parsed):
            for index, sentence in enumerate(parsed):
                outputs.add(sentence, key="data", batch_index=index)
            return outputs
        if isinstance(pipeline, Streaming):
            return _streamed(outputs, pipeline, len(batch))
        good = [item for item in parsed if not isinstance(item, str)]
        predictions = pipeline(_all_texts(good), **_common_parameters(good))
        start = 0
        for index, item in enumerate(parsed):
            # As the real handler: the key of the content at that place, which need not be this request's where requests
            # of a batch bring query parameters along (recorded: 18, exchange 35).
            key = inputs.get_content().key_at(index)
            # A sentence is what could not be parsed; it answers its request in place of a prediction.
            size = 0 if isinstance(item, str) else len(_texts(item))
            answer = item if isinstance(item, str) else predictions[start : start + size]
            encode(outputs, answer, answer_format(batch[index]), key)
            start += size
        return outputs

    def _parsed(self, request: Input) -> Any:  # noqa: ANN401 - a TextInput or a sentence
        """The parsed request, or the sentence that says what is wrong with it."""
        try:
            parsed = self._formatter(request)
            parsed.parameters = parsed.parameters.copy()
            # The server keeps settings of its own among the parameters, so a list of parameters fails here.
            if _SERVER_SETTING not in parsed.parameters:
                parsed.parameters[_SERVER_SETTING] = None
        except KeyError as error:
            return f"{_PARSING_FAILED}Invalid Request Property: {error}"
        except Exception as error:  # noqa: BLE001 - a formatter may raise anything, and so may odd JSON
            logger.warning("cannot parse a request: %s", error)
            return f"{_PARSING_FAILED}{error}"
        return parsed


def _streamed(outputs: Output, streaming: Streaming, requests: int) -> Output:
    if requests > 1:
        msg = "Dynamic batch not supported for generic streaming"
        raise NotImplementedError(msg)
    return outputs.add_property("content-type", "application/jsonlines").add(streaming.refusal, key="data")


def _parse(request: Input) -> TextInput:
    body = decode(request)
    _ = "messages" in body  # a body that is no container fails on the server's look for a chat request
    inputs = body.pop("inputs", body)
    return TextInput(parameters=body.pop("parameters", {}), input_text=inputs)


def _texts(item: TextInput) -> list[Any]:
    return item.input_text if isinstance(item.input_text, list) else [item.input_text]


def _all_texts(items: list[TextInput]) -> list[Any]:
    return [text for item in items for text in _texts(item)]


def _common_parameters(items: list[TextInput]) -> dict[str, Any]:
    parameters = items[0].parameters
    if any(item.parameters != parameters for item in items):
        msg = "In order to enable dynamic batching, all input batches must have the same parameters"
        raise ValueError(msg)
    return {name: value for name, value in parameters.items() if name != _SERVER_SETTING}
