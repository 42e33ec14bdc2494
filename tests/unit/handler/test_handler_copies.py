"""A pass on a GPU waits for no copy, tested with tensors without numbers."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.jit._fuser import optimized_execution
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cohost.handler.cohost_forward import Forward
from cohost.handler.cohost_frames import TokenSequence
from cohost.handler.cohost_packed import PackedByAttention, PackedDeberta, keep_relative_positions
from cohost.handler.cohost_stream import CudaStream
from cohost.handler.cohost_tasks import Want
from cohost.handler.cohost_tokenizer import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from cohost.handler.cohost_tasks import Floats

GPU = torch.device("cuda", 0)
LIMIT = 64
SIZE: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 100,
    "num_labels": 3,
}
DEBERTA_V3: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
CONFIGS: dict[str, Any] = {
    "bert": lambda: transformers.BertConfig(**SIZE),
    "roberta": lambda: transformers.XLMRobertaConfig(**SIZE),
    "deberta": lambda: transformers.DebertaV2Config(**SIZE, **DEBERTA_V3),
}
WANTS = {
    "text-classification": [Want.LOGITS],
    "zero-shot-classification": [Want.LOGITS],
    "feature-extraction": [Want.MEAN, Want.CLS, Want.TOKENS],
}


class CountedStream(CudaStream):
    """A fake GPU stream that counts copies of tensors without numbers."""

    def __init__(self) -> None:
        super().__init__(GPU)
        self.uploads: list[np.dtype[Any]] = []
        self.downloads = 0

    def upload(self, numbers: npt.NDArray[Any]) -> torch.Tensor:
        """A copy that does not wait."""
        self.uploads.append(numbers.dtype)
        pinned = torch.empty(numbers.shape, dtype=torch.int32, device="cpu", pin_memory=True)
        return pinned.to(self.device, non_blocking=True)

    def download(self, tensor: torch.Tensor) -> Callable[[], Floats]:
        """A copy that is never read."""
        assert (tensor.device.type, tensor.dtype) == ("cuda", torch.float32)
        self.downloads += 1
        size = tensor.numel()
        return lambda: np.zeros(size, dtype=np.float32)


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types for it
    """Notes each operation for which the calling thread would wait for the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operation, its inputs and its outputs."""
        given = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "cuda":
            self.seen.append(str(func))
            return True
        result = func(*args, **given)
        devices = {one.device.type for one in tree_leaves((args, result)) if isinstance(one, torch.Tensor)}
        copies = func.overloadpacket in {torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.nonzero}
        if copies and len(devices) > 1 and not given.get("non_blocking"):
            self.seen.append(str(func))
        return result


class Stub(NamedTuple):
    """The output of a library's encoder."""

    last_hidden_state: torch.Tensor


def disentangled_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake of disentangled-flash 1.1.1, whose kernels need Triton."""

    class Encoder(torch.nn.Module):
        def forward_packed(self, hidden: torch.Tensor, starts: torch.Tensor, *_: object, **__: object) -> Stub:
            assert (starts.dtype, starts.device.type) == (torch.int32, "cuda")
            return Stub(hidden)

    def optimize_deberta(model: Any, *, backend: str) -> None:
        assert backend == "auto"
        model.encoder = Encoder()

    module = ModuleType("disentangled_flash")
    module.optimize_deberta = optimize_deberta  # type: ignore[attr-defined]
    module.PackedSequenceInfo = lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "disentangled_flash", module)


@contextmanager
def without_numbers() -> Iterator[None]:
    """A device "cuda" whose tensors have shapes only, half precision as on a GPU."""
    torch.set_default_dtype(torch.float16)
    try:
        # Optimised, TorchScript would compile a kernel for the device.
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with warnings.catch_warnings(), optimized_execution(False), mode:  # noqa: FBT003 - no name in torch
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def forward_of(kind: str, stream: CudaStream, *, packed: bool, vectors: bool) -> Forward:
    """Return a model on the device after its load."""
    build = transformers.AutoModel if vectors else transformers.AutoModelForSequenceClassification
    with torch.device(GPU):
        model = build.from_config(CONFIGS[kind]()).eval()  # type: ignore[no-untyped-call] # transformers has no types
    keep_relative_positions(model, LIMIT)
    way = PackedDeberta if kind == "deberta" else PackedByAttention
    offset = 2 if kind == "roberta" else 0
    row = way(model, stream=stream, padding_token=1, position_offset=offset) if packed else None
    return Forward(model, stream=stream, padding_ids=(1, 0), limit=LIMIT, packed=row)


def not_again(*_: object, **__: object) -> None:
    """Raise an error, because the table of relative positions is made during the load."""
    raise AssertionError("made in a pass")


def batch(wants: list[Want], *, segments: bool) -> list[TokenSequence]:
    """Sequences of different lengths."""
    encoded = [
        Encoded(np.full(size, 5, np.int32), np.zeros(size, np.int32) if segments else None, truncated=False)
        for size in (3, 12, 7)
    ]
    return [TokenSequence(one, len(one.ids), wants[index % len(wants)]) for index, one in enumerate(encoded)]


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("task", WANTS)
def test_a_pass_waits_for_no_copy(monkeypatch: pytest.MonkeyPatch, kind: str, task: str, packed: bool) -> None:  # noqa: FBT001
    """A pass makes one copy to the device and one copy back, whatever the number of layers."""
    disentangled_flash(monkeypatch)
    # On tensors without numbers, transformers leaves out a look at the mask that it takes otherwise.
    monkeypatch.setattr("transformers.masking_utils.is_tracing", lambda _: False)
    stream = CountedStream()
    with without_numbers():
        forward = forward_of(kind, stream, packed=packed, vectors=task == "feature-extraction")
        # It runs as TorchScript, whose copies are not seen here.
        monkeypatch.setattr("transformers.models.deberta_v2.modeling_deberta_v2.build_relative_position", not_again)
        sequences = batch(WANTS[task], segments=kind == "bert")
        with Waits() as waits:
            outputs = forward(sequences)
    assert waits.seen == []
    assert (stream.uploads, stream.downloads) == ([np.dtype(np.int32)], 1)
    size = SIZE["hidden_size"] if task == "feature-extraction" else SIZE["num_labels"]
    assert [one.shape for one in outputs] == [
        (len(one.encoded.ids), size) if one.want is Want.TOKENS else (size,) for one in sequences
    ]
