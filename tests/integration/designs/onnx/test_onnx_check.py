"""The check of an export against torch: its measures and its rejections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.refusals import refused
from onnx_exports import HUB

from cohost.designs.onnx.check import Agreement, compare, require
from cohost.designs.onnx.torch_model import TorchModel
from cohost.errors import OnnxError

GOOD = {"sequences": 25, "output": 0.0, "probability": 0.0, "flipped": 0, "cosine": None}


@pytest.fixture(scope="module")
def classifier() -> TorchModel:
    """A tiny classifier."""
    return TorchModel(HUB / "lmi-cohost/tiny-xlmr-nli", "text-classification")


def test_an_equal_export_agrees_on_short_and_full_texts_and_pairs(classifier: TorchModel) -> None:
    """The check runs all fixed texts: eight alone, eight in a batch, eight pairs, and one that is cut at the limit."""
    lengths: list[int] = []

    def run(arrays: Any) -> Any:
        lengths.append(arrays["input_ids"].shape[1])
        return classifier.run(arrays)

    agreement = compare(classifier, run)
    assert agreement == Agreement(sequences=25, output=0.0, probability=0.0, flipped=0, cosine=None)
    assert max(lengths) == classifier.limit == 512
    assert min(lengths) < 64


def test_a_reversed_export_shows_in_labels_and_probabilities(classifier: TorchModel) -> None:
    """An export with reversed labels fails the check, as a wrongly exported head would."""
    agreement = compare(classifier, lambda arrays: classifier.run(arrays)[:, ::-1])
    assert agreement.flipped
    assert agreement.probability


def test_vectors_are_compared_where_there_is_text() -> None:
    """The check ignores output at padding positions, and finds a turned vector."""
    model = TorchModel(HUB / "lmi-cohost/tiny-embed", "feature-extraction")
    turned = compare(model, lambda arrays: np.roll(model.run(arrays), 1, axis=-1))
    assert turned.cosine is not None
    assert turned.cosine < 0.9
    assert turned.flipped is None


@pytest.mark.parametrize(
    ("precision", "change", "figure", "allowed"),
    [
        ("fp32", {"output": 2e-4}, "2.0e-04", "1e-04"),
        ("fp32", {"output": float("nan")}, "nan", "1e-04"),
        ("int8", {"flipped": 2}, "2 of 25", "none"),
        ("int8", {"probability": 0.2}, "0.200", "0.1"),
        ("int8", {"probability": None, "flipped": None, "cosine": 0.9}, "0.900", "0.95 or more"),
    ],
)
def test_what_is_beyond_the_tolerance_is_refused(
    precision: str, change: dict[str, Any], figure: str, allowed: str
) -> None:
    """The error of an export beyond the tolerance has the deviation and the allowed one."""
    with refused("export-inaccurate", "m", kind=OnnxError) as caught:
        require("m", precision, Agreement(**{**GOOD, **change}))
    assert figure in caught.value.problem
    assert caught.value.allowed == allowed


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_is_within_passes(precision: str) -> None:
    """An int8 export within the tolerance of int8 passes."""
    require("m", precision, Agreement(**GOOD))
