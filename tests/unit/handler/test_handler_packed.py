"""Packed sequences in one row without padding: the same numbers, or packing is not used."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from handler_calls import MDEBERTA, MINILM, XLMR, properties, served

from cohost.handler import cohost_packed
from cohost.handler.cohost_loading import load
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_packed import Bounds, PackedByAttention, attention_within, pack
from cohost.handler.cohost_stream import stream_of
from cohost.handler.cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from handler_calls import Caller

HAS_INTERFACE = hasattr(sys.modules[transformers.BertForSequenceClassification.__module__], "ALL_ATTENTION_FUNCTIONS")


def test_tokens_attend_within_their_own_sequence_only() -> None:
    """In a packed row each token attends only to its own sequence."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 9, 4) for _ in range(3))
    together = attention_within(query, key, value, [0, 2, 3, 9], None)
    alone = [
        attention_within(query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], [0, b - a], None)
        for a, b in ((0, 2), (2, 3), (3, 9))
    ]
    assert torch.allclose(together, torch.cat(alone, dim=2), atol=1e-6)


def test_positions_start_anew_and_are_counted_as_the_model_does() -> None:
    """BERT from 0; RoBERTa from behind the padding index, where a padding token inside a text has no position."""
    encoded = [
        Encoded(np.asarray(ids, np.int32), np.asarray(segments, np.int32), truncated=False)
        for ids, segments in (([5, 6, 7], [0, 0, 1]), ([5, 1, 7], [0, 1, 1]))
    ]
    bert = pack(encoded, padding_token=0, position_offset=0)
    assert bert.numbers.tolist() == [[5, 6, 7, 5, 1, 7], [0, 1, 2, 0, 1, 2], [0, 0, 1, 0, 1, 1]]
    assert bert.bounds == [0, 3, 6]
    assert pack(encoded, padding_token=1, position_offset=2).numbers[1].tolist() == [2, 3, 4, 2, 1, 3]


@pytest.mark.parametrize(("model", "able"), [(MINILM, HAS_INTERFACE), (XLMR, HAS_INTERFACE), (MDEBERTA, True)])
def test_models_that_cannot_are_padded(model: str, able: bool) -> None:  # noqa: FBT001
    """BERT and RoBERTa run packed if their attention can be replaced, and DeBERTa with a library."""
    assert load(read_options(properties(model))).packs is able
    assert load(read_options(properties(model, packing="false"))).packs is False


def test_a_padding_token_in_a_text_changes_nothing() -> None:
    """A text with the token "<pad>" gets the same answer packed and padded."""
    texts = ["the <pad> movie", "<pad>", "the movie was great"]

    async def scenario(call: Caller) -> list[float]:
        answers = await asyncio.gather(
            *(call({"inputs": text, "parameters": {"function_to_apply": "none"}}) for text in texts)
        )
        return [answer.body[0]["score"] for answer in answers]

    packed, padded = (served(properties(XLMR, packing=packing), scenario) for packing in ("true", "false"))
    assert packed == pytest.approx(padded, abs=1e-5)


@pytest.mark.parametrize("kernel", ["wrong", "missing"])
def test_a_kernel_that_is_wrong_or_missing_is_not_used(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """An attention kernel that fails or computes other answers during the load is not used, so answers stay right."""

    def broken(query: torch.Tensor, *_: Any) -> torch.Tensor:
        if kernel == "missing":
            raise RuntimeError("no kernel image is available")
        return query

    monkeypatch.setattr(cohost_packed, "attention_within", broken)
    assert load(read_options(properties(MINILM))).packs is False


@pytest.mark.parametrize("version", ["2.10", "2.11"])
@pytest.mark.parametrize("scale", [None, 0.5, 0.7])
def test_a_gpus_attention_is_called_as_torch_wants_it(
    monkeypatch: pytest.MonkeyPatch, version: str, scale: float | None
) -> None:
    """The attention of torch for packed sequences is called with its own signature and 32-bit bounds.

    Torch 2.10 has no argument for the scale. A stand-in computes what the documentation says, since the kernel itself
    needs a GPU.
    """
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    signature = inspect.signature(varlen.varlen_attn)
    if version == "2.10":
        parameters = [one for one in signature.parameters.values() if one.name not in {"scale", "window_size"}]
        signature = signature.replace(parameters=parameters)

    def varlen_attn(*given: Any, **named: Any) -> torch.Tensor:
        call = signature.bind(*given, **named).arguments
        starts = call["cu_seq_q"]
        assert (starts.dtype, call["cu_seq_k"].tolist()) == (torch.int32, starts.tolist())
        assert call["max_q"] == call["max_k"] == int(starts.diff().max())
        assert all(call[name].is_contiguous() for name in ("query", "key", "value"))
        query, key, value = (call[name].transpose(0, 1).unsqueeze(0) for name in ("query", "key", "value"))
        return attention_within(query, key, value, starts.tolist(), call.get("scale"))[0].transpose(0, 1)

    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    query, key, value = (torch.randn(1, 2, 9, 4) for _ in range(3))
    bounds = Bounds([0, 2, 3, 9], torch.tensor([0, 2, 3, 9], dtype=torch.int32), 6)
    expected = attention_within(query, key, value, bounds.host, scale)
    assert torch.allclose(cohost_packed._on_gpu(query, key, value, bounds, scale), expected, atol=1e-6)


@pytest.mark.skipif(not HAS_INTERFACE, reason="this version of transformers has no packed way")
def test_equal_lengths_are_not_packed_on_a_cpu() -> None:
    """On a CPU equal lengths are not packed, because there is no padding to save and packing costs calls."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(MINILM).eval()
    packed = PackedByAttention(model, stream=stream_of(torch.device("cpu")), padding_token=0, position_offset=0)
    assert [packed.gains_at(lengths) for lengths in ([8] * 64, [8], [8, 9])] == [False, True, True]
