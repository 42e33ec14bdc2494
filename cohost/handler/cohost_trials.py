"""Trials on load: a number format is compared with fp32, a faster forward pass with the model's own.

A forward pass that is not available, or gives other results, is not used, and a log line reports it; the model's own
always works.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from .cohost_device import disagreement, half_types, largest_difference
from .cohost_forward import CompiledModel, Forward, TokenSequence
from .cohost_packed import (
    DEBERTA,
    DISENTANGLED_FLASH,
    FLASH_DEBERTA,
    PackedByAttention,
    PackedDeberta,
    keep_relative_positions,
    use_flash_deberta,
)
from .cohost_stream import stream_of
from .cohost_tasks import Want

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cohost_options import Options
    from .cohost_packed import PackedModel
    from .cohost_tasks import Floats
    from .cohost_tokenizer import Encoded

logger = logging.getLogger(__name__)

_AUTO = "auto"
_FP32 = "fp32"
_TYPES = {_FP32: torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Two orders of the same sums differ in the last bits; half formats have 8 (bf16) or 11 (fp16) of them.
_TOLERANCE = {_FP32: 1e-4, "fp16": 0.02, "bf16": 0.1}


class Trials:
    """The trials of one model: `weights` loads it in fp32 onto `device`; `samples` are the fixed texts.

    The last sample has the model's full length.
    """

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
        self._stream = stream_of(device)
        self._weights = weights
        self._padding_ids = padding_ids
        self._limit = limit
        want = Want.MEAN if options.task == "feature-extraction" else Want.LOGITS
        self._samples = [TokenSequence(sample, len(sample.ids), want) for sample in samples]
        self._labels = want is Want.LOGITS

    def with_dtype(self, model: Any) -> tuple[str, Any]:  # transformers has no types
        """Return the number format to serve in, by name, and the model in it; `model` comes in fp32.

        Raises:
            ValueError: the options' format is not accurate enough, and no other is allowed.
        """
        wanted = self._options.dtype
        formats = half_types(self._device) if wanted == _AUTO else [wanted]
        if formats and formats != [_FP32]:
            reference = self._outputs(self._forward(model))
            for name in formats:
                model = model.to(_TYPES[name])
                if self._suffices(name, reference, self._outputs(self._forward(model))):
                    return name, model
                # Rounded weights stay rounded, so fp32 is loaded from the files again.
                model = self._weights()
        return _FP32, model

    def fastest(self, model: Any, dtype: str, position_offset: int) -> Forward:
        """Return the forward pass to use: compiled or packed if the options request it and its results agree."""
        if self._stream.is_gpu:
            keep_relative_positions(model, self._limit)
        padded = self._forward(model)
        if self._options.attention == FLASH_DEBERTA:
            self._attend_by_flash_deberta(model, padded, dtype)
        if self._options.compile and (compiled := self._compiled(model, padded, dtype)):
            return compiled
        if self._options.packing and (packed := self._packed(model, padded, dtype, position_offset)):
            return packed
        return padded

    def _attend_by_flash_deberta(self, model: Any, padded: Forward, dtype: str) -> None:
        reference = self._outputs(padded)
        put_back: Callable[[], None] | None = None
        try:
            put_back = use_flash_deberta(model)
            fault = self._fault(reference, padded, dtype)
        except Exception as error:  # noqa: BLE001 - a kernel that is not there may raise anything
            fault = str(error)
        if fault is None:
            logger.info("attention: %s", FLASH_DEBERTA)
            return
        if put_back is not None:
            put_back()
        logger.warning("attention: %s is not used, %s", FLASH_DEBERTA, fault)

    def _compiled(self, model: Any, padded: Forward, dtype: str) -> Forward | None:
        compiled = CompiledModel(model, self._limit)
        forward = self._forward(model, compiled=compiled)
        fault = self._fault(self._outputs(padded), forward, dtype) or compiled.failure
        if fault is not None:
            logger.warning("compile: not used, %s", fault)
            return None
        return forward

    def _packed(self, model: Any, padded: Forward, dtype: str, position_offset: int) -> Forward | None:
        kind = PackedDeberta if self._wants_disentangled_flash(model) else PackedByAttention
        try:
            packed = self._forward(
                model,
                kind(model, stream=self._stream, padding_token=self._padding_ids[0], position_offset=position_offset),
            )
            fault = self._fault(self._outputs(padded), packed, dtype)
        except Exception as error:  # noqa: BLE001 - as above, and a library may be missing
            fault = str(error)
        if fault is None:
            return packed
        asked = self._options.attention == DISENTANGLED_FLASH
        logger.log(logging.WARNING if asked else logging.INFO, "packing: not used, %s", fault)
        return None

    def _wants_disentangled_flash(self, model: Any) -> bool:
        if self._options.attention == _AUTO:
            return bool(model.config.model_type == DEBERTA)
        return self._options.attention == DISENTANGLED_FLASH

    def _fault(self, reference: list[Floats], forward: Forward, dtype: str) -> str | None:
        """Return the fault in a forward pass by its outputs, or None."""
        difference = largest_difference(reference, self._outputs(forward))
        # Written so that a difference that is not a number counts as a fault too.
        return None if difference <= _TOLERANCE[dtype] else f"it differs from the usual way by {difference:.2g}"

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

    def _forward(
        self,
        model: Any,
        packed: PackedModel | None = None,
        compiled: CompiledModel | None = None,
    ) -> Forward:
        return Forward(
            model,
            stream=self._stream,
            padding_ids=self._padding_ids,
            limit=self._limit,
            packed=packed,
            compiled=compiled,
        )

    def _outputs(self, forward: Forward) -> list[Floats]:
        return forward(self._samples[:-1]) + forward(self._samples[-1:])
