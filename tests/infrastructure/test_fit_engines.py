"""The checks of models that do not suit their task or attention."""

from __future__ import annotations

from typing import Any

import pytest
from synthesis import make_catalog

from cohost.forecast.plan.profiles import Profile
from constructs_lib.checks.catalog import engine_misfits

NLI = {"model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"], "num_labels": 3}
RERANKER = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 1}
EMBEDDER = {"model_type": "bert", "architectures": ["BertModel"]}


def told(config: dict[str, Any] | None, **entry: Any) -> list[tuple[str, str]]:
    """Return level and name of the misfits of one model."""
    profiles = {} if config is None else {"org/name": Profile(source="a test", elements={"fp32": 1}, config=config)}
    model = {"model_id": "org/name", "task": "text-classification", **entry}
    return [(m.level, m.name) for m in engine_misfits(make_catalog(models={"m": model}), profiles)]


@pytest.mark.parametrize(
    ("config", "entry"),
    [
        (NLI, {}),
        (NLI, {"task": "zero-shot-classification"}),
        (NLI, {"task": "feature-extraction"}),
        (NLI, {"handler": "batched", "batched": {"attention": "eager"}}),
        (NLI, {"handler": "batched", "batched": {"attention": "disentangled-flash"}}),
        (RERANKER, {}),
        (RERANKER, {"handler": "batched", "batched": {"attention": "sdpa"}}),
        (EMBEDDER, {"task": "feature-extraction"}),
        (None, {"task": "zero-shot-classification"}),
    ],
)
def test_what_goes_together_is_not_remarked_upon(config: dict[str, Any] | None, entry: dict[str, Any]) -> None:
    """A model that suits its task, and an unknown model, cause no error and no warning."""
    assert told(config, **entry) == []


@pytest.mark.parametrize(
    ("config", "entry", "name"),
    [
        (EMBEDDER, {}, "model-task"),
        (EMBEDDER, {"task": "zero-shot-classification"}, "model-task"),
        (RERANKER, {"task": "zero-shot-classification"}, "model-task"),
        (NLI, {"handler": "batched", "batched": {"attention": "sdpa"}}, "model-attention"),
    ],
)
def test_what_would_fail_or_mean_nothing_is_an_error(config: dict[str, Any], entry: dict[str, Any], name: str) -> None:
    """A random classification head, a missing entailment label or a rejected attention is an error."""
    assert told(config, **entry) == [("error", name)]


def test_an_attention_that_is_not_used_is_a_warning() -> None:
    """An attention setting that the handler cannot use is a warning, because the handler falls back."""
    entry = {"handler": "batched", "batched": {"attention": "flashdeberta"}}
    assert told(RERANKER, **entry) == [("warning", "attention-unused")]
