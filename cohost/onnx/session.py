"""An exported model as onnxruntime runs it. Imports onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt


class Session:
    """One ONNX file on the CPU; `threads` 0 takes the machine's physical cores."""

    def __init__(self, file: Path, *, threads: int = 0) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that spin while they wait take the cores from the other models of the machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs in the file's order."""
        return tuple(one.name for one in self._session.get_inputs())

    def run(self, arrays: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """The only output for inputs by name."""
        output: npt.NDArray[np.float32] = self._session.run(None, dict(arrays))[0]
        return output
