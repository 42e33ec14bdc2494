"""The stock handler around a fake pipeline: parsing, batching and encoding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.handler_api.inputs import TextInput
from local_aws.lmi.stock.handler import StockHandler
from local_aws.lmi.stock.pipelines import Streaming, read_options, task_of

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = "application/json"
NOT_PARSED = "Input Parsing failed. Ensure that the request payload is valid. "


def _echo(texts: list[Any], **parameters: Any) -> list[Any]:
    return [{"text": text, **parameters} for text in texts]


def _handler(pipeline: Callable[..., Any] = _echo, formatter: Callable[..., Any] | None = None) -> StockHandler:
    return StockHandler(formatter, load=lambda _: pipeline)


def _input(*bodies: bytes, content_type: str | None = JSON, accept: str | None = None) -> Input:
    inputs = Input()
    headers = {"Content-Type": content_type, "Accept": accept}
    for index, body in enumerate(bodies):
        prefix = f"batch_{index:03d}." if len(bodies) > 1 else ""
        inputs.properties |= {prefix + name: value for name, value in headers.items() if value}
        inputs.content.add(f"{prefix}data", body)
    if len(bodies) > 1:
        inputs.properties["batch_size"] = str(len(bodies))
    return inputs


def _answers(output: Output | None) -> list[Any]:
    assert output is not None
    return [value.decode() for value in output.content.values]


def test_one_text_answers_a_list_of_one() -> None:
    """One text gets a list with one prediction."""
    (answer,) = _answers(_handler().handle(_input(b'{"inputs": "a"}')))
    assert json.loads(answer) == [{"text": "a"}]


def test_each_request_of_a_batch_gets_its_own_predictions() -> None:
    """A request with two texts gets two predictions, and another of the batch its one."""
    output = _handler().handle(_input(b'{"inputs": ["a", "b"]}', b'{"inputs": "c"}'))
    assert output is not None
    assert output.content.keys == ["batch_000.data", "batch_001.data"]
    texts = [[item["text"] for item in json.loads(answer)] for answer in _answers(output)]
    assert texts == [["a", "b"], ["c"]]


def test_one_unreadable_request_keeps_its_neighbours() -> None:
    """An unreadable request of a batch gets a sentence, and the others predictions (recorded: 18)."""
    output = _handler().handle(_input(b'{"inputs":', b'{"inputs": "c"}'))
    sentence, answer = _answers(output)
    assert json.loads(sentence).startswith(f"{NOT_PARSED}Expecting value")
    assert json.loads(answer) == [{"text": "c"}]


def test_different_parameters_fail_the_batch() -> None:
    """Recorded (18): two callers with different parameters break each other."""
    bodies = (b'{"inputs": "a"}', b'{"inputs": "b", "parameters": {"top_k": null}}')
    with pytest.raises(ValueError, match="all input batches must have the same parameters"):
        _handler().handle(_input(*bodies))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'["a"]', "pop expected at most 1 argument, got 2"),
        (b'"abc"', "'str' object has no attribute 'pop'"),
        (b'{"inputs": "a", "parameters": [1]}', "list indices must be integers or slices, not str"),
        (b'{"inputs": "a", "parameters": null}', "'NoneType' object has no attribute 'copy'"),
    ],
)
def test_an_unreadable_request_is_answered_with_a_sentence(body: bytes, text: str) -> None:
    """Recorded (02): status 200 and a plain sentence, no JSON and no content type."""
    output = _handler().handle(_input(body))
    assert _answers(output) == [NOT_PARSED + text]
    assert output is not None
    assert output.properties == {}


@pytest.mark.parametrize(
    ("body", "content_type", "texts"),
    [
        (b"plain text", "text/plain", ["plain text"]),
        (b"inputs\na\nb\n", "text/csv", ["a", "b"]),
        (b"", None, [""]),
        (b'{"inputs": "a"}', None, ["a"]),
        (b'{"inputs": "a"}', "application/json; charset=utf-8", ["a"]),
        (b'{"text": "a", "text_pair": "b"}', JSON, [{"text": "a", "text_pair": "b"}]),
    ],
)
def test_the_content_type_decides_how_a_body_is_read(body: bytes, content_type: str | None, texts: list[Any]) -> None:
    """The content type decides how the stock handler parses a body (recorded: 02)."""
    (answer,) = _answers(_handler().handle(_input(body, content_type=content_type)))
    assert [item["text"] for item in json.loads(answer)] == texts


@pytest.mark.parametrize("accept", [None, "*/*", JSON, "application/json, text/plain"])
def test_json_is_answered_to_whoever_takes_it(accept: str | None) -> None:
    """The answer is JSON for each Accept header that allows JSON."""
    output = _handler().handle(_input(b'{"inputs": "a"}', accept=accept))
    assert output is not None
    assert output.properties == {"Content-Type": JSON}


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("text/csv", "'Output' object has no attribute 'add_as_string'"),
        ("a/xml", "'dict' object has no attribute 'dtype'"),
    ],
)
def test_other_formats_fail_as_in_the_image(accept: str, text: str) -> None:
    """Recorded (02): a caller who asks for CSV or XML gets 424 with this text."""
    with pytest.raises(AttributeError, match=text):
        _handler().handle(_input(b'{"inputs": "a"}', accept=accept))


def test_a_formatter_replaces_the_parsing() -> None:
    """A formatter parses the request, and its missing key is named in the answer (recorded: 22)."""

    def formatter(request: Input, **_: Any) -> TextInput:
        return TextInput(input_text=request.get_as_json()["q"], parameters={"top_k": None})

    handler = _handler(formatter=formatter)
    assert json.loads(_answers(handler.handle(_input(b'{"q": "a"}')))[0]) == [{"text": "a", "top_k": None}]
    assert _answers(handler.handle(_input(b"{}"))) == [f"{NOT_PARSED}Invalid Request Property: 'q'"]


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"dtype": "fp99"}, "Invalid data type: fp99; known: fp32"),
        ({"rolling_batch": "vllm"}, "write rolling_batch=disable"),
        ({"quantize": "bitsandbytes8"}, "quantize: bitsandbytes needs a GPU"),
        ({"enable_streaming": "yes"}, "enable_streaming=yes is not allowed; allowed: true, false, huggingface"),
    ],
)
def test_options_of_no_use_stop_the_load(properties: dict[str, str], text: str) -> None:
    """An option that cannot work fails the load, and the log has the option and the fix."""
    with pytest.raises(ValueError, match=text):
        read_options({"model_dir": "/m"} | properties)


def test_options_reach_the_pipeline() -> None:
    """Only dtype and trust_remote_code reach the pipeline, not max_length and similar options (recorded: 05)."""
    options = read_options({"model_id": "/w", "dtype": "BF16", "trust_remote_code": "True", "max_length": "64"})
    assert options.model == "/w"
    assert options.keywords() == {"trust_remote_code": True, "dtype": "bfloat16"}


def test_an_encoder_that_is_to_stream_answers_a_sentence() -> None:
    """Recorded (22, exchange 41): 200, application/jsonlines; a batch of several fails."""
    handler = StockHandler(load=lambda _: Streaming("not in supported list"))
    output = handler.handle(_input(b'{"inputs": "a"}'))
    assert output is not None
    assert (output.properties, _answers(output)) == (
        {"content-type": "application/jsonlines"},
        ["not in supported list"],
    )
    with pytest.raises(NotImplementedError, match="Dynamic batch not supported for generic streaming"):
        handler.handle(_input(b'{"inputs": "a"}', b'{"inputs": "b"}'))


def test_query_parameters_shift_the_answers_of_a_batch() -> None:
    """With query parameters the second request of a batch gets the key of the first (recorded: 18)."""
    inputs = _input(b'{"inputs": "a"}', b'{"inputs": "b"}')
    inputs.content.keys.insert(0, "batch_000.model_name")
    inputs.content.values.insert(0, b"m")
    output = _handler().handle(inputs)
    assert output is not None
    assert output.content.keys == ["batch_000.model_name", "batch_000.data"]


def test_weights_in_the_archive_are_used_without_a_model_id() -> None:
    """Recorded (05, bundled): no model_id means the model's own folder."""
    assert read_options({"model_dir": "/m"}).model == "/m"


def test_the_task_is_inferred_from_the_architecture() -> None:
    """Recorded (05, notask): …ForSequenceClassification is text-classification."""
    assert task_of("BertForSequenceClassification") == "text-classification"
    with pytest.raises(ValueError, match="manually set `task`"):
        task_of("BertModel")


def test_configuration_tokenizer_and_weights_are_of_the_revision() -> None:
    """A pinned revision is what is fetched; without one the handler asks for none, which means main."""
    pinned = read_options({"model_id": "org/name", "revision": "abc"})
    assert pinned.source() == {"trust_remote_code": False, "revision": "abc"} == pinned.keywords()
    assert read_options({"model_id": "org/name"}).source() == {"trust_remote_code": False}
