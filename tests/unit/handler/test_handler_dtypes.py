"""Number formats: the order of their trials on a device, and the place of weights during a conversion."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from handler_calls import EMBED, MINILM, properties, served

from cohost.handler import cohost_loading
from cohost.handler.cohost_loading import Formats, Weights, formats_of, load
from cohost.handler.cohost_options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from handler_calls import Caller

GPU = torch.device("cuda", 0)


class FakeModel:
    """A model whose moves and conversions are recorded, as "cuda:0" or "float16"."""

    def __init__(self, moves: list[str]) -> None:
        self.moves = moves
        self.dtype = torch.float32

    def to(self, target: Any) -> FakeModel:
        """Convert in place, as a module of torch does."""
        self.moves.append(str(target).removeprefix("torch."))
        self.dtype = target if isinstance(target, torch.dtype) else self.dtype
        return self


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Return a GPU with every format; the load's settings are restored afterwards."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def chosen(outputs: Callable[[Any], list[Any]], moves: list[str] | None = None, **given: object) -> tuple[str, Weights]:
    """Return the format in which a model on the GPU is served with these outputs."""
    options = read_options(properties("m", device_id=0, **given))
    weights = Weights(lambda: FakeModel([] if moves is None else moves), GPU)
    return Formats(options, GPU, outputs, labels=True).choose(weights), weights


def label_of(*wrong: str) -> Callable[[FakeModel], list[Any]]:
    """Return outputs that differ from fp32 in some formats."""

    def outputs(model: FakeModel) -> list[Any]:
        name = str(model.dtype).removeprefix("torch.")
        if name == "float32" and torch.backends.cuda.matmul.allow_tf32:
            name = "tf32"
        return [np.asarray([0.0, 1.0] if name in wrong else [1.0, 0.0], dtype=np.float32)]

    return outputs


@pytest.mark.usefixtures("ampere")
@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ((), "fp16"),
        (("float16",), "bf16"),
        (("float16", "bfloat16"), "tf32"),
        (("float16", "bfloat16", "tf32"), "fp32"),
    ],
)
def test_a_gpu_serves_in_the_fastest_format_with_the_answers_of_fp32(
    wrong: tuple[str, ...], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a dtype a GPU serves in the fastest format whose answers equal fp32, and the log names the others."""
    got, weights = chosen(label_of(*wrong))
    assert got == name
    assert torch.backends.cuda.matmul.allow_tf32 is (name == "tf32")
    assert weights.model.dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)
    assert len(caplog.messages) == len(wrong)
    assert all("is refused for m: check text 0 gets another label than in fp32" in line for line in caplog.messages)


def test_older_gpus_try_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A T4 tries neither bf16 nor tf32, an A10G all formats, and a CPU those of its flags."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert formats_of(GPU) == ["fp16"]
    monkeypatch.setattr("cohost.handler.cohost_device._cpu_info", lambda: "flags : avx2")
    assert formats_of(torch.device("cpu")) == []


@pytest.mark.usefixtures("ampere")
def test_the_default_depends_on_the_device() -> None:
    """A GPU has "auto"; a CPU, or a catalog that names a format, keeps fp32 or that format."""
    assert read_options(properties("m", device_id=0)).dtype == "auto"
    assert read_options(properties("m", device="cuda")).dtype == "auto"
    assert read_options(properties("m")).dtype == "fp32"
    assert read_options(properties("m", device_id=0, device="cpu")).dtype == "fp32"
    assert chosen(label_of(), dtype="fp32")[0] == "fp32"
    assert chosen(label_of(), dtype="tf32")[0] == "tf32"


@pytest.mark.usefixtures("ampere")
def test_an_error_in_a_format_is_a_reason_to_try_the_next_and_a_lost_gpu_ends_the_load() -> None:
    """An error in one format leads to the next, but a lost GPU ends the load."""

    def mixed(model: FakeModel) -> list[Any]:
        if model.dtype == torch.float16:
            raise RuntimeError("expected m1 and m2 to have the same dtype")
        return label_of()(model)

    def lost(model: FakeModel) -> list[Any]:
        if model.dtype == torch.float16:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return label_of()(model)

    assert chosen(mixed)[0] == "bf16"
    with pytest.raises(ValueError, match="fp16 is refused for m: RuntimeError: expected m1"):
        chosen(mixed, dtype="fp16")
    assert chosen(mixed, dtype="fp16", dtype_fallback=True)[0] == "fp32"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        chosen(lost)


def test_tf32_without_such_a_processor_is_refused_by_name() -> None:
    """tf32 on a device without tf32 is rejected, because the setting would have no effect."""
    with pytest.raises(ValueError, match=r"tf32 is refused for .*: it needs a GPU of compute capability 8\.0"):
        load(read_options(properties(MINILM, dtype="tf32")))


@pytest.mark.usefixtures("ampere")
def test_weights_are_converted_on_the_cpu_and_half_of_them_is_uploaded() -> None:
    """Weights are converted on the CPU, because a conversion on the GPU holds both formats."""
    moves: list[str] = []
    chosen(label_of("float16"), moves)
    assert moves == [
        *("cpu", "cuda:0"),  # fp32, for the answers to compare with
        *("cpu", "float16", "cuda:0"),
        *("bfloat16", "cuda:0"),  # a second model, since the first is rounded
    ]


@pytest.mark.usefixtures("ampere")
def test_the_first_model_is_gone_before_another_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first model is freed before a second load, because two may not fit."""
    living: list[weakref.ref[FakeModel]] = []
    freed: list[str] = []
    monkeypatch.setattr(cohost_loading, "free_device_memory", lambda: freed.append("freed"))

    def read() -> FakeModel:
        assert [reference() for reference in living] == [None] * len(living)
        model = FakeModel([])
        living.append(weakref.ref(model))
        return model

    options = read_options(properties("m", device_id=0))
    Formats(options, GPU, label_of("float16", "bfloat16"), labels=True).choose(Weights(read, GPU))
    assert len(living) == 3
    assert len(freed) == 4


def test_what_was_chosen_stands_in_the_log_and_in_the_counters(caplog: pytest.LogCaptureFixture) -> None:
    """The chosen number format is in the log and in the counters, so a report can show it."""

    async def scenario(call: Caller) -> dict[str, Any]:
        return await call.counters()

    with caplog.at_level(logging.INFO):
        counters = served(properties(EMBED, "feature-extraction"), scenario)
    assert (counters["dtype"], counters["device"]) == ("fp32", "cpu")
    assert any("feature-extraction on cpu, fp32, 1 threads" in line for line in caplog.messages)
