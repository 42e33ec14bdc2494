"""One thread for torch, since tests share the machine; and imports what warns: transformers' DeBERTa, once."""

from __future__ import annotations

import warnings

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _deberta_imported() -> None:
    """On import, transformers' DeBERTa uses a function that torch deprecates."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import transformers.models.deberta_v2.modeling_deberta_v2  # noqa: F401 - only here is it quiet
