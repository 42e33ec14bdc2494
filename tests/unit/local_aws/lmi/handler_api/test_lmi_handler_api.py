"""The handler interface behaves as a model.py expects of djl_python."""

from __future__ import annotations

import importlib
import json
import struct
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from local_aws.lmi import handler_api
from local_aws.lmi.handler_api import Input, Output

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def installed() -> Iterator[None]:
    """Make djl_python importable for one test."""
    before = set(sys.modules)
    handler_api.install()
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _batch() -> Input:
    inputs = Input()
    inputs.properties = {"batch_size": "2", "batch_000.Content-Type": "a", "batch_001.X": "b", "handler": "handle"}
    inputs.content.add("batch_000.data", b'{"n": 0}')
    inputs.content.add("batch_001.data", b'{"n": 1}')
    return inputs


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("module", ["inputs", "outputs", "input_parser", "request_io", "pair_list"])
def test_handlers_import_the_names_of_the_image(module: str) -> None:
    """`from djl_python.outputs import Output` finds the very class that the worker checks for."""
    assert importlib.import_module(f"djl_python.{module}") is getattr(handler_api, module)
    assert importlib.import_module("djl_python").Output is Output


def test_a_batch_is_taken_apart() -> None:
    """Each request of a batch gets its own properties and content, without prefixes."""
    first, second = _batch().get_batches()
    assert (first.get_as_json(), second.get_as_json()) == ({"n": 0}, {"n": 1})
    assert (first.properties, second.properties) == ({"Content-Type": "a"}, {"X": "b"})


def test_a_single_request_is_a_batch_of_itself() -> None:
    """A handler for batches gets a single request as a batch of one."""
    inputs = Input()
    inputs.content.add("data", b"x")
    assert inputs.get_batches() == [inputs]


def test_properties_are_found_whatever_their_case() -> None:
    """HTTP header names have no case."""
    inputs = Input()
    inputs.properties = {"Content-Type": "a"}
    assert inputs.get_property("content-type") == "a"
    assert inputs.get_property("accept") is None


def test_content_without_data_gives_its_first_entry() -> None:
    """get_as_string returns the only field of a form (recorded: 02)."""
    inputs = Input()
    assert inputs.get_as_bytes() is None
    inputs.content.add("inputs", b"abc")
    assert inputs.get_as_string() == "abc"
    with pytest.raises(KeyError, match="requested data for key:other is not found!"):
        inputs.get_as_bytes("other")


def test_answers_are_written_as_recorded() -> None:
    """JSON answers have two blanks of indent, none after colons, and unescaped non-ASCII text, as recorded."""
    output = Output().add_as_json([{"label": "é", "score": 0.5}])
    assert output.content.value_at(0).decode() == '[\n  {\n    "label":"é",\n    "score":0.5\n  }\n]'


def test_nan_cannot_be_answered() -> None:
    """An answer with NaN fails to encode."""
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        Output().add_as_json([float("nan")])


def test_numbers_of_numpy_can_be_answered_and_tensors_cannot() -> None:
    """Recorded (30): with return_tensors the pipeline gives tensors, and the answer is 424."""

    class Tensor:
        def tolist(self) -> list[float]:
            return [1.0]

    assert Output().add_as_json({"a": np.float32(0.5), "b": np.array([1])}).content.size() == 1
    with pytest.raises(TypeError, match="Object of type Tensor is not JSON serializable"):
        Output().add_as_json(Tensor())


def test_an_error_is_an_answer_with_a_json_body() -> None:
    """Recorded (06): 424, "invoke handler failure" and the text."""
    output = Output().error("e")
    assert (output.code, output.message) == (424, "invoke handler failure")
    body = {"code": 424, "message": "invoke handler failure", "error": "e"}
    assert json.loads(output.content.value_at(0)) == body


def test_binary_encode_writes_counted_texts() -> None:
    """The form that the server reads from asynchronous handlers; values become text."""
    assert Output.binary_encode({"last": True}) == struct.pack(">hi4si4s", 1, 4, b"last", 4, b"True")


def test_content_goes_to_a_request_of_the_batch() -> None:
    """Output.add with key and batch_index assigns content to a request of the batch."""
    output = Output().add("x", key="data", batch_index=1).add(b"y", key="batch_000.data")
    assert output.content.get_keys() == ["batch_1.data", "batch_000.data"]
