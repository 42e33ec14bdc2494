"""DeBERTa's attention by a library made for it, where the image or the catalog's `packages` bring one.

Both need nothing of the weights changed. The signatures are those of disentangled-flash 1.1.1 (`deberta.py`,
`packed.py`), which runs sequences without padding, on a GPU in Triton and on a CPU in torch, and of flashdeberta 0.0.8
(`model.py`), which is for GPUs and pads. What they answer is tried against transformers' own attention on load.
"""

from __future__ import annotations

import copy
import importlib
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from .cohost_packed import PackedModel

if TYPE_CHECKING:
    from collections.abc import Callable

DISENTANGLED_FLASH = "disentangled-flash"
FLASH_DEBERTA = "flashdeberta"
DEBERTA = "deberta-v2"

_USUAL_ATTENTION = "DisentangledSelfAttention"


class PackedDeberta(PackedModel):
    """A DeBERTa-v2 or v3 whose packed passes go through disentangled-flash; its padded passes stay as they are."""

    def __init__(self, model: Any, *, device: torch.device, **keywords: Any) -> None:  # noqa: ANN401 - transformers has no types
        """Raises ImportError without the library, and ValueError where it has nothing for the model or the GPU."""
        if model.config.model_type != DEBERTA:
            raise ValueError(f"{DISENTANGLED_FLASH} is for {DEBERTA}, and this is {model.config.model_type}")
        library = importlib.import_module("disentangled_flash")
        super().__init__(model, device=device, **keywords)
        # The library replaces the encoder that it is given, and its own cannot run padded batches of any length.
        base = _twin(self._base)
        # "auto" leaves the model alone where the GPU's kernels do not suit it; on a CPU that would be always.
        library.optimize_deberta(base, backend="auto" if device.type == "cuda" else "torch")
        if not hasattr(base.encoder, "forward_packed"):
            raise ValueError(f"{DISENTANGLED_FLASH} has no kernel for this model on this GPU")
        self._describe: Callable[..., Any] = library.PackedSequenceInfo
        self._embeddings: Any = base.embeddings
        self._encoder: Any = base.encoder

    def _last_layer(self, tensors: dict[str, torch.Tensor], bounds: list[int]) -> torch.Tensor:
        lengths = tuple(end - start for start, end in pairwise(bounds))
        # With the bounds told in Python too, no layer waits for them to come back from the GPU.
        info = self._describe(tuple(bounds), lengths, max(lengths))
        starts = self._to_device(torch.tensor(bounds, dtype=torch.int32), self._device)
        output = self._encoder.forward_packed(
            self._embeddings(**tensors)[0], starts, max(lengths), output_hidden_states=False, packed_info=info
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def use_flash_deberta(model: Any) -> Callable[[], None]:  # noqa: ANN401 - transformers has no types
    """Has each layer of a DeBERTa attend through flashdeberta; what it returns has them attend as before.

    Raises:
        ImportError: the library, or Triton, is not there.
        ValueError: the model has no disentangled attention of transformers.
    """
    if model.config.model_type != DEBERTA:
        raise ValueError(f"{FLASH_DEBERTA} is for {DEBERTA}, and this is {model.config.model_type}")
    library = importlib.import_module("flashdeberta")
    usual = getattr(sys.modules[type(model).__module__], _USUAL_ATTENTION)
    layers = [module for module in model.modules() if type(module) is usual]

    def become(kind: type) -> None:
        # The library's class is a child of transformers' with the same members and another way to compute.
        for layer in layers:
            layer.__class__ = kind

    become(library.FlashDisentangledSelfAttention)
    return lambda: become(usual)


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    """The same modules anew, with the same weights: in one of them a part can be replaced, and the other keeps it."""
    twin = copy.copy(module)
    # A shallow copy shares the dictionary of its children with the original.
    twin._modules = {  # noqa: SLF001 - torch has no other way
        name: None if child is None else _twin(child)
        for name, child in module._modules.items()  # noqa: SLF001 - as above
    }
    return twin
