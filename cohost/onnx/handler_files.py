"""The Python handler of ONNX archives: its own files, and those of the batching handler that it shares."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN: Final = Path(__file__).parent / "handler"
_SHARED_FOLDER: Final = Path(__file__).parent.parent / "handler"

# What starts a process, reads requests and writes answers, none of which needs torch or transformers.
_SHARED: Final = (
    "cohost_classification",
    "cohost_errors",
    "cohost_features",
    "cohost_json",
    "cohost_memory",
    "cohost_options",
    "cohost_parameters",
    "cohost_reload",
    "cohost_request",
    "cohost_restart",
    "cohost_tasks",
    "cohost_texts",
    "cohost_tokenizer",
    "cohost_watchdog",
    "cohost_zero_shot",
)

REQUIREMENTS: Final = ("numpy==2.4.6", "onnxruntime==1.32.0", "tokenizers==0.22.2")
"""What the handler imports and the cpu-full image lacks, as locked here."""


@cache
def handler_files() -> Mapping[str, bytes]:
    """The handler's files by their names at an archive's root, model.py among them."""
    files = {path.name: path.read_bytes() for path in sorted(_OWN.glob("*.py")) if path.stem != "__init__"}
    return files | {f"{name}.py": (_SHARED_FOLDER / f"{name}.py").read_bytes() for name in _SHARED}
