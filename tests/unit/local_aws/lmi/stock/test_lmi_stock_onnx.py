"""The OnnxRuntime engine's probabilities, which the emulation computes without the core's code."""

from __future__ import annotations

import numpy as np
import pytest

from cohost.handler.cohost_classification import softmax as softmax_of_the_handler
from local_aws.lmi.stock.onnx import sigmoid, softmax


@pytest.mark.parametrize("logits", [[0.0], [-30.0, 0.5, 30.0], [1.5, -2.25, 0.0, 7.0]])
def test_probabilities_are_those_of_the_handler(logits: list[float]) -> None:
    """The probabilities of DJL's translator equal those of the handler; one label gets a sigmoid."""
    row = np.array(logits, np.float32)
    assert softmax(row) == pytest.approx(softmax_of_the_handler(row))
    against_zero = [softmax_of_the_handler(np.array([0, value], np.float32))[1] for value in logits]
    assert sigmoid(row) == pytest.approx(against_zero)
