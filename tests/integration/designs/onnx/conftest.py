"""Each tiny model exported once a worker, and quiet imports."""

from __future__ import annotations

import warnings

import pytest
import torch
from onnx_exports import Exports, Folders


@pytest.fixture(scope="session", autouse=True)
def _quiet_imports() -> None:
    """Import transformers' DeBERTa without torch's warning, and limit threads because tests share the machine."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import transformers.models.deberta_v2.modeling_deberta_v2  # noqa: F401 - only here is it quiet


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Return the exports, all in one folder."""
    return Exports(tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="session")
def folders(exports: Exports, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The archives' contents."""
    return Folders(exports, tmp_path_factory.mktemp("unpacked"))
