"""The Python handler of ONNX archives: transformers' answers with onnxruntime and tokenizers alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from onnx_exports import HUB
from transformers import pipeline

from cohost.designs.onnx.handler.onnx_service import OnnxService
from local_aws.lmi.handler_api import Input, Output
from local_aws.lmi.workers.connection import Frame
from local_aws.lmi.workers.jobs import AsyncAnswer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = ["The train to Busan leaves at nine.", "부산행 기차는 아홉 시에 떠납니다. " * 200, "비"]
PAIR = {"text": "The train leaves.", "text_pair": "기차가 떠난다."}


def request_of(body: Any, properties: dict[str, str]) -> Input:
    """Return a call as the server passes it to the handler."""
    inputs = Input()
    inputs.properties = {"Content-Type": "application/json", **properties}
    if body is not None:
        inputs.content.add("data", json.dumps(body).encode())
    return inputs


def served(folder: Path, task: str, **options: str) -> Callable[[Any], tuple[int, Any]]:
    """Calls of a handler that has loaded a folder: status and answer."""
    service = OnnxService(Output)  # type: ignore[type-abstract,arg-type]
    properties = {"model_dir": str(folder), "task": task, "max_length": "512", **options}

    async def answer(bodies: list[Any]) -> list[Any]:
        await service.handle(request_of(None, properties))
        return [await service.handle(request_of(body, {})) for body in bodies]

    def call(body: Any) -> tuple[int, Any]:
        (output,) = asyncio.run(answer([body]))
        frame = Frame({"code": 200, "message": "OK", "properties": {}}, [(None, output.content.value_at(0))])
        whole = AsyncAnswer().add(frame)
        assert whole is not None
        return whole.code, json.loads(whole.body)

    return call


def test_classification_is_that_of_transformers(folders: dict[str, Path]) -> None:
    """Texts and pairs of all lengths get the pipeline's answers within the tolerance of int8."""
    call = served(folders["deberta"], "text-classification")
    own = pipeline("text-classification", model=str(HUB / "lmi-cohost/tiny-mdeberta-nli"))
    status, answer = call({"inputs": [*TEXTS, PAIR]})
    expected = own([*TEXTS, PAIR], truncation=True)
    assert status == 200
    for found, wanted in zip(answer, expected, strict=True):
        assert found["label"] == wanted["label"]
        assert found["score"] == pytest.approx(wanted["score"], abs=1e-2)
    _, listed = call({"inputs": "x", "parameters": {"top_k": 2}})
    assert [len(labels) for labels in listed] == [2]


def test_zero_shot_is_that_of_transformers(folders: dict[str, Path]) -> None:
    """Zero-shot labels are ranked as by the pipeline, up to rounding in fp32."""
    call = served(folders["bert"], "zero-shot-classification")
    own = pipeline("zero-shot-classification", model=str(HUB / "lmi-cohost/tiny-minilm-nli"))
    parameters = {"candidate_labels": ["travel", "요리", "politics"], "multi_label": True}
    _, (answer,) = call({"inputs": TEXTS[0], "parameters": parameters})
    expected = own(TEXTS[0], **parameters)
    assert answer["labels"] == expected["labels"]
    assert answer["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_features_have_the_stock_shape_or_are_pooled(folders: dict[str, Path]) -> None:
    """Features are one vector per token as by the stock handler, or one per text, whatever the batch."""
    tokens = served(folders["embed"], "feature-extraction")
    _, answer = tokens({"inputs": TEXTS})
    assert [len(text) for text in answer] == [1, 1, 1]
    assert len(answer[1][0]) == 512
    assert len({len(vector) for text in answer for vector in text[0]}) == 1
    pooled = served(folders["embed"], "feature-extraction", pooling="mean", normalize="true")
    _, vectors = pooled({"inputs": TEXTS})
    assert [sum(number**2 for number in vector) for vector in vectors] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(("device_id", "warned"), [("-1", False), ("0", True)])
def test_a_gpu_that_is_not_used_is_named_in_the_log(
    folders: dict[str, Path],
    device_id: str,
    warned: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a GPU machine the log says that the model runs on the CPU."""
    served(folders["embed"], "feature-extraction", pooling="mean", device_id=device_id)({"inputs": "x"})
    assert ("the GPU that the server gave this worker is not used" in caplog.text) is warned


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        ({"inputs": 5}, 400, "inputs: got 5"),
        ({"inputs": []}, 400, "inputs"),
        ({"inputs": "x", "parameters": {"topk": 1}}, 400, "fix: write top_k"),
        ({"inputs": "x " * 2000, "parameters": {"truncation": False}}, 400, "tokens; allowed: 512"),
    ],
)
def test_wrong_calls_get_a_status_and_a_reason(folders: dict[str, Path], body: Any, status: int, fault: str) -> None:
    """A wrong call gets 400 with the field, as with the batching handler."""
    found, answer = served(folders["deberta"], "text-classification")(body)
    assert found == status
    assert fault in answer["error"]


def test_archive_runs_without_the_project_torch_and_transformers(folders: dict[str, Path]) -> None:
    """The handler runs from the archive's files with only the requirements of the archive."""
    program = f"""
import asyncio, sys, types
sys.path.insert(0, {str(folders["deberta"])!r})
class Output:
    def add_property(self, key, val): pass
    def add(self, value): self.value = value
    @staticmethod
    def binary_encode(data): return data
sys.modules["djl_python"] = types.SimpleNamespace(Output=Output)
for name in ("torch", "transformers", "pydantic", "boto3"):
    sys.modules[name] = None
class Input:
    def __init__(self, body, properties): self.body, self.properties = body, properties
    def get_property(self, key): return None
    def get_properties(self): return self.properties
    def get_as_bytes(self, key=None): return self.body
    def is_empty(self): return self.body is None
import model
async def run():
    options = {{"model_dir": {str(folders["deberta"])!r}, "task": "text-classification", "max_length": "512"}}
    await model.handle(Input(None, options))
    return (await model.handle(Input(b'{{"inputs": "a text"}}', {{}}))).value
print(asyncio.run(run())["data"])
print({{getattr(m, "__file__", "") or "" for n, m in sys.modules.items() if n.startswith("cohost.") and m}})
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, cwd=folders["deberta"]
    )
    assert '"label"' in done.stdout
    assert "/work" not in done.stdout.replace(str(folders["deberta"]), "")
