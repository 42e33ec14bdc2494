"""Sentence similarity."""

from __future__ import annotations

import pytest

from local_aws.demo.script import cosine, mean_pooled


def test_mean_of_tokens_has_length_one() -> None:
    """Pooling averages over tokens, not over dimensions, and scales."""
    assert mean_pooled([[3.0, 0.0], [3.0, 8.0]]) == pytest.approx([0.6, 0.8])


def test_cosine_orders_by_direction() -> None:
    """The same direction gives 1, a right angle 0."""
    assert cosine([0.6, 0.8], [0.6, 0.8]) == pytest.approx(1)
    assert cosine([1.0, 0.0], [0.0, 1.0]) == 0
