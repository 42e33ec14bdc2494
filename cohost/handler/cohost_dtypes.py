"""The number format of a model: weights are converted on the CPU, and a format is held against fp32 on the device.

A format is used if its outputs for fixed texts agree with those of fp32. With "auto" the fastest one that agrees is
used, and what raises an error counts as one that does not agree.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

import torch

from .cohost_device import disagreement, half_types, has_tf32, largest_difference
from .cohost_errors import reason_of
from .cohost_memory import free_device_memory, is_lost_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cohost_options import Options
    from .cohost_tasks import Floats

    Outputs = Callable[[Any], list[Floats]]

logger = logging.getLogger(__name__)

_AUTO = "auto"
_FP32 = "fp32"
_TF32 = "tf32"
_CPU = torch.device("cpu")
_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Weights:
    """A model on its way to `device`; `load` reads it in fp32, on the CPU. One at a time is held, here."""

    def __init__(self, load: Callable[[], Any], device: torch.device) -> None:
        self._load = load
        self._device = device
        self.model = load()
        self._rounded = False

    def put(self, dtype: str) -> Any:  # transformers has no types
        """Return the model on the device, in a format.

        It is converted on the CPU: a conversion on the device holds both formats there at the same time.
        """
        if self._rounded:
            # Rounded weights stay rounded, and two models at a time may not fit.
            self.model = None
            gc.collect()
        else:
            self.model.to(_CPU)
        free_device_memory()
        if self.model is None:
            self.model = self._load()
        self._rounded = dtype in _TYPES
        if self._rounded:
            self.model.to(_TYPES[dtype])
        _allow_tf32(self._device, allowed=dtype == _TF32)
        return self.model.to(self._device)


class Formats:
    """The formats to try for one model. `outputs` runs the fixed texts; with `labels`, they are logits."""

    def __init__(self, options: Options, device: torch.device, outputs: Outputs, *, labels: bool) -> None:
        self._options = options
        self._device = device
        self._outputs = outputs
        self._labels = labels

    def choose(self, weights: Weights) -> str:
        """Put the weights on the device in the format to serve in, and return its name.

        Raises:
            ValueError: the options' format is not accurate enough or not available, and no other is allowed.
        """
        wanted = self._options.dtype
        formats = formats_of(self._device) if wanted == _AUTO else [wanted]
        if formats in ([], [_FP32]):
            weights.put(_FP32)
            return _FP32
        reference = self._outputs(weights.put(_FP32))
        for name in formats:
            problem = self._problem(name, weights, reference)
            if problem is None:
                return name
            message = f"dtype: {name} is refused for {self._options.model}: {problem}"
            if wanted != _AUTO and not self._options.dtype_fallback:
                raise ValueError(
                    f"{message}; allowed: a format with the answers of fp32; fix: write dtype auto, or fp32"
                )
            logger.warning("%s; trying the next", message)
        weights.put(_FP32)
        return _FP32

    def _problem(self, name: str, weights: Weights, reference: list[Floats]) -> str | None:
        if name == _TF32 and not has_tf32(self._device):
            return "it needs a GPU of compute capability 8.0 or higher"
        try:
            outputs = self._outputs(weights.put(name))
        except Exception as error:
            # A model may hold numbers of its own that stay in fp32, or lack an operation in this format.
            if is_lost_device(error):
                raise
            return reason_of(error)
        problem = disagreement(reference, outputs, labels=self._labels)
        if problem is None:
            logger.info("%s differs from fp32 by %.2g at most", name, largest_difference(reference, outputs))
        return problem


def formats_of(device: torch.device) -> list[str]:
    """Return the formats worth trying on a device beside fp32, the fastest first."""
    return half_types(device) + ([_TF32] if has_tf32(device) else [])


def _allow_tf32(device: torch.device, *, allowed: bool) -> None:
    """Let matrix products round fp32 to 10 bits of fraction, or not; a setting of the whole process."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = allowed
