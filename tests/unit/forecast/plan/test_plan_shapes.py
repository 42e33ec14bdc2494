"""The dimensions in config.json, and the number of parameters that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused

from cohost.errors import PlanError
from cohost.forecast.plan.shapes import ModelShape

if TYPE_CHECKING:
    from cohost.forecast.plan.profiles import Profile

BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
PUBLISHED = {
    "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7": 278_811_651,
    "joeddav/xlm-roberta-large-xnli": 559_893_507,
}


def parameters_of(config: dict[str, Any]) -> int:
    """Return the number of parameters of a model with its head, as transformers builds it."""
    shape = ModelShape.from_config(config)
    hidden, wide = shape.hidden, shape.intermediate
    positions = shape.positions if config.get("position_biased_input", True) else 0
    embeddings = (config["vocab_size"] + shape.token_types + positions + 2) * hidden
    relative = (shape.position_span + 2) * hidden if shape.position_span else 0
    square = hidden * hidden + hidden
    layer = 4 * square + hidden * wide + wide + wide * hidden + hidden + 4 * hidden
    return embeddings + relative + shape.layers * layer + square + config.get("num_labels", 0) * (hidden + 1)


@pytest.mark.parametrize(("model_id", "parameters"), PUBLISHED.items())
def test_parameters_that_follow_from_the_shape_are_the_published_ones(
    encoder_profiles: dict[str, Profile], model_id: str, parameters: int
) -> None:
    """The dimensions of the profiles give the published number of parameters."""
    profile = encoder_profiles[model_id]
    assert parameters_of(profile.config) == sum(profile.elements.values()) == parameters


def test_minilm_is_the_size_of_its_file(encoder_profiles: dict[str, Profile]) -> None:
    """The third model's file on the Hub is about 428 MB of fp32."""
    profile = encoder_profiles["MoritzLaurer/multilingual-MiniLMv2-L6-mnli-xnli"]
    assert parameters_of(profile.config) == sum(profile.elements.values())
    assert profile.weight_bytes() == pytest.approx(428e6, rel=0.001)


def test_distilbert_names_its_dimensions_otherwise() -> None:
    """DistilBERT's own names of dimensions are read."""
    shape = ModelShape.from_config(
        {
            "model_type": "distilbert",
            "dim": 768,
            "n_layers": 6,
            "n_heads": 12,
            "hidden_dim": 3072,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        }
    )
    assert (shape.hidden, shape.layers, shape.heads, shape.intermediate) == (768, 6, 12, 3072)


@pytest.mark.parametrize("value", [None, 0, -1, "384", True, 3.5])
def test_dimension_that_is_no_number_is_refused(value: object) -> None:
    """A dimension that is no number is an error with its field."""
    with refused("config-invalid", "config.json", kind=PlanError) as caught:
        ModelShape.from_config(BERT | {"hidden_size": value})
    assert "hidden_size" in caught.value.problem


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({}, "fused"),
        ({"model_type": "xlm-roberta"}, "fused"),
        ({"model_type": "deberta-v2", "relative_attention": True}, "disentangled"),
        ({"model_type": "deberta-v2", "relative_attention": False}, "scores"),
        ({"model_type": "never-heard-of"}, "scores"),
    ],
)
def test_attention_follows_from_the_architecture(changes: dict[str, Any], attention: str) -> None:
    """The plan counts attention scores for each architecture that is not known to fuse them."""
    assert ModelShape.from_config(BERT | changes).attention == attention


def test_roberta_cannot_use_two_of_its_positions() -> None:
    """XLM-RoBERTa with 514 positions takes 512 tokens."""
    config = BERT | {"model_type": "xlm-roberta", "max_position_embeddings": 514}
    assert ModelShape.from_config(config).longest_input == 512


@pytest.mark.parametrize(
    ("config", "span"),
    [
        ({"position_buckets": 256}, 512),
        ({"position_buckets": -1, "max_relative_positions": -1}, 1024),
        ({"position_buckets": -1, "max_relative_positions": 128}, 256),
    ],
)
def test_span_of_relative_positions(config: dict[str, Any], span: int) -> None:
    """Buckets decide, then the furthest distance, then the number of positions."""
    base = BERT | {"model_type": "deberta-v2", "relative_attention": True}
    assert ModelShape.from_config(base | config).position_span == span
