"""DeBERTa with attention libraries: equal answers, or the library is not used."""

from __future__ import annotations

import asyncio
import builtins
import logging
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch
from handler_calls import MDEBERTA, MINILM, properties, served

from cohost.handler.cohost_loading import Loaded, load
from cohost.handler.cohost_options import read_options

if TYPE_CHECKING:
    from handler_calls import Caller

TEXTS = ["the movie was great", "bad", " ".join(["good food and service"] * 40), ["a pair", "of texts"], "영화 😀"]


def loaded(**options: object) -> Loaded:
    """The small DeBERTa."""
    return load(read_options(properties(MDEBERTA, **options)))


def scores(**options: object) -> list[float]:
    """Answers to the texts, sent at once."""

    async def scenario(call: Caller) -> list[float]:
        raw = {"parameters": {"function_to_apply": "none"}}
        bodies = [
            {"inputs": text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}} for text in TEXTS
        ]
        answers = await asyncio.gather(*(call(body | raw) for body in bodies))
        return [answer.body[0]["score"] for answer in answers]

    answered: list[float] = served(properties(MDEBERTA, **options), scenario)
    return answered


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make a library appear not installed."""
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    usual = builtins.__import__

    def find(wanted: str, *rest: Any, **keywords: Any) -> Any:
        if wanted.partition(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return usual(wanted, *rest, **keywords)

    monkeypatch.setattr(builtins, "__import__", find)
    monkeypatch.setitem(sys.modules, name, None)


def test_deberta_runs_without_padding_and_answers_the_same() -> None:
    """disentangled-flash itself, on a CPU: each text alone in a row with others has the score that padding gives."""
    assert loaded().packs
    assert not loaded(attention="eager").packs
    assert scores() == pytest.approx(scores(packing="false"), abs=1e-5)


def test_the_models_own_attention_stays_for_padded_batches() -> None:
    """A caller who requests padding gets the model's own attention, because the library has modules of its own."""

    async def scenario(call: Caller) -> Any:
        bodies = [{"inputs": "the movie was great", "parameters": given} for given in ({}, {"padding": "max_length"})]
        return [(await call(body, cohost_batch="true")) for body in bodies]

    packed, padded = served(properties(MDEBERTA), scenario)
    assert packed.body[0]["score"] == pytest.approx(padded.body[0]["score"], abs=1e-5)
    assert packed.headers["cohost-batch"].startswith("1/7 ")
    assert padded.headers["cohost-batch"].startswith("1/512 ")


def test_vectors_of_tokens_are_the_same_without_padding() -> None:
    """feature-extraction has no head; each token's vector is that of the padded pass."""

    async def scenario(call: Caller) -> Any:
        return (await call({"inputs": ["good food", "the movie was great and good"]})).body

    packed, padded = (
        served(properties(MDEBERTA, "feature-extraction", packing=packing), scenario) for packing in ("true", "false")
    )
    for first, second in zip(packed, padded, strict=True):
        assert torch.allclose(torch.tensor(first), torch.tensor(second), atol=1e-4)


@pytest.mark.parametrize(("attention", "level"), [("auto", logging.INFO), ("disentangled-flash", logging.WARNING)])
def test_without_the_library_deberta_is_padded_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, attention: str, level: int
) -> None:
    """Without the library DeBERTa is padded and the log says so; a catalog that names the library gets a warning."""
    without(monkeypatch, "disentangled_flash")
    caplog.set_level(logging.INFO)
    assert not loaded(attention=attention).packs
    (line,) = [record for record in caplog.records if record.message.startswith("packing: not used")]
    assert (line.levelno, "disentangled_flash" in line.message) == (level, True)


def test_a_gpu_that_the_library_has_no_kernel_for_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeBERTa is padded on a GPU for which the library has no kernel (disentangled-flash 1.1.1)."""
    monkeypatch.setattr("disentangled_flash.optimize_deberta", lambda model, *, backend: model)  # noqa: ARG005
    assert not loaded().packs


def test_the_library_is_for_deberta_only(caplog: pytest.LogCaptureFixture) -> None:
    """A library for DeBERTa named for another model gives a warning, and the model is served without it."""
    assert not load(read_options(properties(MINILM, attention="disentangled-flash"))).packs
    assert "disentangled-flash is for deberta-v2, and this is bert" in caplog.text


def flashdeberta(monkeypatch: pytest.MonkeyPatch, change: float) -> list[int]:
    """Return a fake of flashdeberta 0.0.8, whose kernel needs a GPU, with the list of its uses.

    Its class is a child of transformers' own with this signature (`model.py`, FlashDisentangledSelfAttention).
    """
    from transformers.models.deberta_v2.modeling_deberta_v2 import (  # conftest.py says why
        DisentangledSelfAttention,
    )

    used: list[int] = []

    class FlashDisentangledSelfAttention(DisentangledSelfAttention):  # type: ignore[misc] # transformers has no types
        def forward(
            self,
            hidden_states: torch.Tensor,
            attention_mask: torch.Tensor,
            output_attentions: bool = False,  # noqa: FBT001, FBT002 - as the library's
            query_states: torch.Tensor | None = None,
            relative_pos: torch.Tensor | None = None,
            rel_embeddings: torch.Tensor | None = None,
        ) -> tuple[torch.Tensor, None]:
            used.append(len(hidden_states))
            output, _ = super().forward(
                hidden_states, attention_mask, output_attentions, query_states, relative_pos, rel_embeddings
            )
            return output + change, None

    module = ModuleType("flashdeberta")
    module.FlashDisentangledSelfAttention = FlashDisentangledSelfAttention  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flashdeberta", module)
    return used


def test_flashdeberta_takes_the_place_of_each_layers_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded batches use flashdeberta's attention, with transformers' answers."""
    expected = scores(packing="false")
    used = flashdeberta(monkeypatch, 0.0)
    assert scores(attention="flashdeberta") == pytest.approx(expected, abs=1e-5)
    assert used


def test_flashdeberta_that_differs_is_put_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel of flashdeberta is not used if its answers differ on this GPU."""
    expected = scores(packing="false")
    flashdeberta(monkeypatch, 5.0)
    assert scores(attention="flashdeberta") == pytest.approx(expected, abs=1e-5)
    assert "flashdeberta: not used, it differs" in caplog.text


def test_flashdeberta_that_is_not_there_costs_speed_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without flashdeberta the model uses transformers' attention, and the log has the reason."""
    without(monkeypatch, "flashdeberta")
    assert not loaded(attention="flashdeberta").packs
    assert "flashdeberta: not used" in caplog.text
