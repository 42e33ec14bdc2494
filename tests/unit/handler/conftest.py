"""One thread for torch, since tests share the machine; and imports what warns: transformers' DeBERTa, once."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cohost.handler import cohost_trials

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cohost.handler.cohost_forward import Forward
    from cohost.handler.cohost_frames import TokenSequence


@pytest.fixture(scope="session", autouse=True)
def _torch_prepared() -> None:
    """Import transformers' DeBERTa once, because it uses a function that torch deprecates.

    A torch for GPUs on a machine without one compiles with a stand-in for the driver, which belongs to the first thread
    that compiles: here the one that outlives all models.
    """
    with FakeTensorMode():
        pass
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import transformers.models.deberta_v2.modeling_deberta_v2  # noqa: F401 - only here is it quiet


@pytest.fixture(autouse=True)
def _every_way_is_fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give models of tests fixed speeds, because the times of such small models are noise.

    Markers of trials are a test's own.
    """

    def seconds_of(forward: Forward, batch: Sequence[TokenSequence]) -> float:
        if forward._compiled is not None:
            return 1.0
        return 2.0 if forward.packs(batch[0]) else 3.0

    monkeypatch.setattr(cohost_trials, "seconds_of", seconds_of)
    monkeypatch.setattr(cohost_trials, "tempfile", SimpleNamespace(gettempdir=lambda: str(tmp_path)))
