"""The embedded OnnxRuntime engine: the answers of DJL's translators, and its errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from onnx_exports import HUB
from transformers import AutoModel, AutoTokenizer, pipeline

from cohost.archives.properties import loads
from local_aws.lmi.errors import EngineFailure
from local_aws.lmi.handler_api import Input
from local_aws.lmi.models.serving_properties import ONNX_ENTRY_POINT, read_settings
from local_aws.lmi.stock.onnx import OnnxEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "부산행 기차는 아홉 시에 떠납니다. " * 200


def request_of(body: bytes | None, content_type: str, properties: dict[str, str]) -> Input:
    """Return a call as the container passes it to the engine."""
    inputs = Input()
    inputs.properties = {"Content-Type": content_type, **properties}
    if body is not None:
        inputs.content.add("data", body)
    return inputs


def served(folder: Path, **changed: str) -> Callable[..., tuple[int, Any]]:
    """Return status and answer of calls to an engine that has loaded a folder."""
    engine = OnnxEngine()
    settings = {**loads((folder / "serving.properties").read_text()), "model_dir": str(folder), **changed}
    assert engine.handle(request_of(None, "", settings)) is None

    def call(body: Any, content_type: str = "application/json") -> tuple[int, Any]:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        output = engine.handle(request_of(sent, content_type, {}))
        assert output is not None
        return output.code, json.loads(output.content.value_at(0))

    return call


def test_labels_come_as_class_names_with_probabilities(folders: dict[str, Path]) -> None:
    """The engine returns all labels, the best first, with transformers' probabilities."""
    call = served(folders["xlmr"])
    own = pipeline("text-classification", model=str(HUB / "lmi-cohost/tiny-xlmr-nli"), top_k=None)
    status, one = call({"inputs": LONG})
    _, several = call({"inputs": ["a text", LONG]})
    expected = [own("a text")[0], own(LONG, truncation=True)[0]]
    assert status == 200
    assert one == several[1]
    for found, wanted in zip(several, expected, strict=True):
        assert [item["className"] for item in found] == [item["label"] for item in wanted]
        probabilities = [item["probability"] for item in found]
        assert probabilities == pytest.approx([item["score"] for item in wanted], abs=1e-5)


def test_vectors_are_the_mean_of_the_tokens_at_length_one(folders: dict[str, Path]) -> None:
    """The vector of a text is the normalized mean of its tokens, without the padding beside a longer text."""
    call = served(folders["embed"])
    folder = HUB / "lmi-cohost/tiny-embed"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        hidden = model(**tokenizer("short", return_tensors="pt"))[0][0].numpy()
    mean = hidden.mean(0) / np.linalg.norm(hidden.mean(0))
    _, alone = call({"inputs": "short"})
    _, beside = call({"inputs": ["short", LONG]})
    assert float(np.dot(alone, mean)) > 0.99
    assert float(np.dot(beside[0], mean)) > 0.99
    _, first = served(folders["embed"], pooling="cls", normalize="false")({"inputs": "short"})
    assert len(first) == len(alone)
    assert np.linalg.norm(first) != pytest.approx(1)


def test_plain_text_and_a_bare_list_are_taken(folders: dict[str, Path]) -> None:
    """A body that is not JSON is one text, and a JSON list is a list of texts."""
    call = served(folders["xlmr"])
    _, plain = call("기차".encode(), "text/plain")
    assert plain == call({"inputs": "기차"})[1]
    assert call(["기차", 5])[0] == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "x"}, 'Missing "inputs" in json.'),
        ({"inputs": {"text": "a", "text_pair": "b"}}, "java.lang.UnsupportedOperationException: JsonObject"),
        ({"inputs": [{"text": "a", "text_pair": "b"}]}, "Input is not a valid json."),
        (b"{oops", "Input is not a valid json."),
    ],
)
def test_what_the_translator_cannot_read_is_a_400(folders: dict[str, Path], body: Any, message: str) -> None:
    """A pair, or another input that DJL's translator cannot read, is a 400."""
    assert served(folders["xlmr"])(body) == (400, {"code": 400, "type": "TranslateException", "message": message})


def test_another_number_of_inputs_than_the_file_has_is_refused(folders: dict[str, Path]) -> None:
    """A wrong includeTokenTypes fails each call as in the real engine, which counts the inputs."""
    status, answer = served(folders["xlmr"], includeTokenTypes="true")({"inputs": "x"})
    assert status == 400
    assert "Input mismatch, looking for: ['input_ids', 'attention_mask']" in answer["message"]


def test_unknown_translators_and_poolings_fail_the_load(folders: dict[str, Path]) -> None:
    """A load with an unknown translator or pooling fails with the list of the known ones."""
    with pytest.raises(ValueError, match=r"translatorFactory: .x. is not part of this emulation; allowed: ai\.djl"):
        served(folders["xlmr"], translatorFactory="x")
    with pytest.raises(ValueError, match="pooling: 'lasttoken' is not part of this emulation; allowed: mean, max, cls"):
        served(folders["embed"], pooling="lasttoken")


def test_engine_is_told_by_its_file_or_by_name(tmp_path: Path) -> None:
    """The file model.onnx selects the engine if serving.properties does not; `engine` without it is rejected."""
    (tmp_path / "serving.properties").write_text("engine=OnnxRuntime\n")
    with pytest.raises(EngineFailure, match=r"model\.onnx not found"):
        read_settings(tmp_path, {})
    (tmp_path / "model.onnx").write_bytes(b"")
    assert read_settings(tmp_path, {}).entry_point == ONNX_ENTRY_POINT
    (tmp_path / "serving.properties").write_text("")
    assert read_settings(tmp_path, {}).entry_point == ONNX_ENTRY_POINT
    (tmp_path / "serving.properties").write_text("engine=Python\n")
    assert read_settings(tmp_path, {}).entry_point is None
