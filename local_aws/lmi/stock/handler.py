"""The stock handler: parse requests, run a Hugging Face pipeline over all their inputs, and answer in their order.

The pipeline gets a list without a batch size (default 1), so the model processes the texts one by one. One invalid
item, or two requests with different `parameters`, make the whole batch fail. Content types are case-sensitive, so
"APPLICATION/JSON" counts as bytes. The real stock handler, too, processes texts one by one, fails whole batches, and
compares content types case-sensitively. Source: DJL Serving 0.36.0 (huggingface handler, encode_decode), recorded
(tests/data/djl_vectors).
"""

from __future__ import annotations

import csv
import io
import logging
from typing import TYPE_CHECKING, Any

from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.handler_api.inputs import TextInput
from local_aws.lmi.stock.pipelines import Streaming, load_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_CSV_COLUMNS = ("question", "context", "inputs")
_NO_CSV_HEADER = (
    "You need to provide the correct CSV with Header columns to use it with the inference toolkit default handler."
)


def decode(request: Input) -> Any:
    """Return the request's body as {"inputs": …, …}; a JSON body of any other form is returned as it was parsed.

    Raises:
        ValueError: the body does not match the content type (JSON, UTF-8, CSV with a header).
    """
    content_type = request.get_property("Content-Type")
    if not content_type:
        return request.get_as_json() if request.get_as_bytes() else {"inputs": ""}
    if "application/json" in content_type:
        return request.get_as_json()
    if "text/csv" in content_type:
        return _decode_csv(request.get_as_string())
    if "text/plain" in content_type:
        return {"inputs": [request.get_as_string()]}
    if content_type == "application/x-www-form-urlencoded":
        return {"inputs": request.get_as_string()}
    return {"inputs": request.get_as_bytes()}


def _decode_csv(text: str) -> dict[str, list[Any]]:
    header = text.splitlines()[0].lower()
    if not any(column in header for column in _CSV_COLUMNS):
        raise ValueError(_NO_CSV_HEADER)
    rows = list(csv.DictReader(io.StringIO(text)))
    return {"inputs": [row["inputs"] for row in rows] if "inputs" in rows[0] else rows}


_JSON = "application/json"


def answer_format(request: Input) -> str:
    """Return the answer's content type: the value of `Accept`, or JSON if `Accept` has "*/*".

    A request without `Accept` gets JSON, unless its Content-Type begins with "tensor/": then it gets that Content-Type.
    """
    accept = request.get_property("Accept")
    if accept:
        return _JSON if "*/*" in accept else str(accept)
    content_type = request.get_property("Content-Type") or _JSON
    return str(content_type) if content_type.startswith("tensor/") else _JSON


def encode(outputs: Output, prediction: Any, content_type: str, key: str | None) -> None:
    """Add a prediction to the outputs as JSON.

    Raises:
        AttributeError: `content_type` is another format. The real handler fails with the same two texts.
    """
    if _JSON in content_type:
        outputs.add_as_json(prediction, key=key)
        outputs.add_property("Content-Type", _JSON)
    elif "text/csv" in content_type:
        msg = "'Output' object has no attribute 'add_as_string'"
        raise AttributeError(msg)
    else:
        item = prediction[0] if isinstance(prediction, list) and prediction else prediction
        msg = f"'{type(item).__name__}' object has no attribute 'dtype'"
        raise AttributeError(msg)


_SERVER_SETTING = "output_formatter"
_PARSING_FAILED = "Input Parsing failed. Ensure that the request payload is valid. "

logger = logging.getLogger(__name__)


class StockHandler:
    """The stock handler of one model.

    `formatter` (Input, **settings) → TextInput replaces the stock parsing of requests. `load` returns the pipeline for
    the properties of the handler's first call.
    """

    def __init__(
        self,
        formatter: Callable[..., Any] | None = None,
        *,
        load: Callable[[Mapping[str, Any]], Callable[..., Any] | Streaming] = load_pipeline,
    ) -> None:
        self._formatter = formatter or _parse
        self._load = load
        self._pipeline: Callable[..., Any] | Streaming | None = None

    def handle(self, inputs: Input) -> Output | None:
        """Load the model in the first call; in every later call, answer a request or a batch."""
        if self._pipeline is None:
            self._pipeline = self._load(inputs.get_properties())
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
            # As in the real handler, the key is that of the content at position `index`. It may belong to another
            # request of the batch if requests have query parameters (recorded: 18, exchange 35).
            key = inputs.get_content().key_at(index)
            # A str is the error text of a request that could not be parsed; it is the answer instead of a prediction.
            size = 0 if isinstance(item, str) else len(_texts(item))
            answer = item if isinstance(item, str) else predictions[start : start + size]
            encode(outputs, answer, answer_format(batch[index]), key)
            start += size
        return outputs

    def _parsed(self, request: Input) -> Any:  # returns a TextInput or the text of an error
        """Return the parsed request, or a text that names the error if the request cannot be parsed."""
        try:
            parsed = self._formatter(request)
            parsed.parameters = parsed.parameters.copy()
            # The server stores its own settings in the parameters, so a list of parameters fails here.
            if _SERVER_SETTING not in parsed.parameters:
                parsed.parameters[_SERVER_SETTING] = None
        except KeyError as error:
            return f"{_PARSING_FAILED}Invalid Request Property: {error}"
        except Exception as error:  # noqa: BLE001 - formatters and unusual JSON may raise any exception
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
    _ = "messages" in body  # a body that is not a container fails here, when the server checks for a chat request
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
