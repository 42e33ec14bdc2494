"""What is tried on load before it is used: a number format against fp32, the packed way against the padded one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from .cohost_device import half_types
from .cohost_forward import Forward, TokenSequence
from .cohost_packed import PackedModel
from .cohost_precision import disagreement, largest_difference
from .cohost_tasks import Want

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cohost_options import Options
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_AUTO = "auto"
_FP32 = "fp32"
_TYPES = {_FP32: torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Two orders of the same sums differ in the last bits; half formats have 8 (bf16) or 11 (fp16) of them.
_PACKED_TOLERANCE = {_FP32: 1e-4, "fp16": 0.02, "bf16": 0.1}


class Trials:
    """`weights` loads the model in fp32 onto `device`; `samples` are the fixed texts, the last one of full length."""

    def __init__(
        self,
        options: Options,
        *,
        device: torch.device,
        weights: Callable[[], Any],
        padding_ids: tuple[int, int],
        limit: int,
        samples: list[Encoded],
    ) -> None:
        self._options = options
        self._device = device
        self._weights = weights
        self._padding_ids = padding_ids
        self._limit = limit
        want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
        self._samples = [TokenSequence(sample, len(sample.ids), want) for sample in samples]
        self._labels = want is Want.LOGITS

    def with_dtype(self, model: Any) -> tuple[str, Any]:  # noqa: ANN401 - transformers has no types
        """The number format to serve in, by name, and the model in it; `model` comes in fp32.

        Raises:
            ValueError: the format that the options name is not good enough, and no other is allowed.
        """
        wanted = self._options.dtype
        formats = half_types(self._device) if wanted == _AUTO else [wanted]
        if formats and formats != [_FP32]:
            reference = self._outputs(self._forward(model))
            for name in formats:
                model = model.to(_TYPES[name])
                if self._suffices(name, reference, self._outputs(self._forward(model))):
                    return name, model
                # Rounded weights stay rounded, so fp32 starts from the files again.
                model = self._weights()
        return _FP32, model

    def with_packing(self, model: Any, dtype: str, position_offset: int) -> Forward:  # noqa: ANN401 - as above
        """The way through the model: packed where the options allow it, the model can do it, and it gives the same."""
        padded = self._forward(model)
        if not self._options.packing:
            return padded
        try:
            packed = self._forward(
                model,
                PackedModel(
                    model,
                    device=self._device,
                    padding_token=self._padding_ids[0],
                    position_offset=position_offset,
                ),
            )
            difference = largest_difference(self._outputs(padded), self._outputs(packed))
        except Exception as error:  # noqa: BLE001 - a kernel that is not there may raise anything; padding always works
            logger.info("packing: not used, %s", error)
            return padded
        if not difference <= _PACKED_TOLERANCE[dtype]:
            logger.warning("packing: not used, it differs from padding by %.2g", difference)
            return padded
        return packed

    def _suffices(self, name: str, reference: list[Floats], outputs: list[Floats]) -> bool:
        problem = disagreement(reference, outputs, labels=self._labels)
        if problem is None:
            logger.info("%s differs from fp32 by %.2g at most", name, largest_difference(reference, outputs))
            return True
        message = f"dtype: {name} is refused for {self._options.model}: {problem}"
        if self._options.dtype != _AUTO and not self._options.dtype_fallback:
            raise ValueError(f"{message}; write dtype fp32, or dtype_fallback true")
        logger.warning("%s; trying the next", message)
        return False

    def _forward(self, model: Any, packed: PackedModel | None = None) -> Forward:  # noqa: ANN401 - as above
        return Forward(model, device=self._device, padding_ids=self._padding_ids, limit=self._limit, packed=packed)

    def _outputs(self, forward: Forward) -> list[Floats]:
        return forward(self._samples[:-1]) + forward(self._samples[-1:])
