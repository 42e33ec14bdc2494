"""Compare the memory plan's estimate of activations with the measured peak of real forward passes; print both.

The models have random weights, three architectures, and sizes from tiny to base. The batches have 1 to 32 texts of 64
to 512 tokens, padded like real batches. On the CPU, the peak is the largest running sum of the allocations that torch's
profiler reports; on a GPU (`--device cuda`), it is torch's own peak of allocated memory. Neither measurement needs a
quiet machine.

Run it as `python benchmarks/activations.py [--device cuda] [--dtype fp16] [--quick]`. The exit code is 1 if an estimate
is more than 25 percent above the measured peak, or more than 10 percent below.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForSequenceClassification

from cohost.forecast.plan.shapes import ModelShape, peak_activation_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1024 * 1024
MOST_OVER, MOST_UNDER = 0.25, 0.10
LARGEST_MIB: Final = 600
"""The largest estimate, in MiB, of a case that runs on the CPU, so that the benchmark fits a small machine."""

DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BATCHES, TOKENS = (1, 4, 8, 32), (64, 128, 300, 512)

# Each shape is (hidden, layers, heads, intermediate): a tiny model, MiniLM's width and the base width.
SIZES: Final = ((64, 2, 4, 128), (384, 4, 12, 1536), (768, 2, 12, 3072))
DEBERTA: Final[dict[str, Any]] = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "max_position_embeddings": 512,
}
ARCHITECTURES: Final[dict[str, dict[str, Any]]] = {
    "bert": {"max_position_embeddings": 512},
    "xlm-roberta": {"max_position_embeddings": 514, "type_vocab_size": 1},
    "deberta-v2": DEBERTA,
}


@dataclass(frozen=True)
class Case:
    """One forward pass: model, number of texts, tokens per text, and the estimated and measured peak in bytes."""

    model: str
    batch: int
    tokens: int
    estimated: int
    measured: int

    @property
    def error(self) -> float:
        """Return the share by which the estimate is over the measurement; negative if it is under the measurement."""
        return self.estimated / self.measured - 1

    @property
    def holds(self) -> bool:
        """Return True if the estimate is at most 25 % above and 10 % below the measurement."""
        return -MOST_UNDER <= self.error <= MOST_OVER


def make_model(architecture: str, size: tuple[int, int, int, int], device: str, dtype: torch.dtype) -> Any:
    """Create a model with random weights and a small vocabulary, since embeddings are weights, not activations."""
    hidden, layers, heads, intermediate = size
    config = AutoConfig.for_model(
        architecture,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        vocab_size=1000,
        num_labels=3,
        **ARCHITECTURES[architecture],
    )
    return AutoModelForSequenceClassification.from_config(config).eval().to(device=device, dtype=dtype)


def measure(model: Any, batch: int, tokens: int) -> int:
    """Return the peak memory of one forward pass over texts of two lengths, in bytes, without weights and inputs.

    A pass before the measured one warms the model up.
    """
    device = model.device
    ids = torch.randint(5, 1000, (batch, tokens), device=device)
    mask = torch.ones_like(ids)
    mask[1:, tokens // 2 :] = 0
    with torch.inference_mode():
        model(input_ids=ids, attention_mask=mask)
        if device.type == "cuda":
            return _cuda_peak(model, ids, mask)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            model(input_ids=ids, attention_mask=mask)
    return _cpu_peak(trace)


def _cuda_peak(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model(input_ids=ids, attention_mask=mask)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _cpu_peak(trace: profile) -> int:
    """Return the largest running sum of allocated minus freed bytes, in the order of events."""
    events = [event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events))


def cases(device: str, dtype: str, *, quick: bool) -> Iterator[Case]:
    """Measure and yield all cases (models, batch sizes, lengths), or with `quick` a few of each architecture."""
    sizes = SIZES[1:2] if quick else SIZES
    grid = ((1, 64), (4, 128)) if quick else tuple(itertools.product(BATCHES, TOKENS))
    for architecture, size in itertools.product(ARCHITECTURES, sizes):
        model = make_model(architecture, size, device, DTYPES[dtype])
        shape = ModelShape.from_config(model.config.to_dict())
        for batch, tokens in grid:
            element = DTYPES[dtype].itemsize
            estimated = peak_activation_bytes(shape, batch=batch, tokens=tokens, element_bytes=element)
            if device == "cpu" and estimated > LARGEST_MIB * MIB:
                continue
            measured = measure(model, batch, tokens)
            yield Case(f"{architecture} {size[0]}", batch, tokens, estimated, measured)


def main() -> int:
    """Measure all cases; print one line per case, and the extremes; return 1 if an estimate is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    parser.add_argument("--quick", action="store_true", help="a few cases of each architecture")
    options = parser.parse_args()
    torch.manual_seed(0)
    found = []
    for case in cases(options.device, options.dtype, quick=options.quick):
        found.append(case)
        print(
            f"{case.model:<18} {case.batch:>3} x {case.tokens:<4} measured {case.measured / MIB:9.2f} MiB, "
            f"estimated {case.estimated / MIB:9.2f} MiB, {case.error:+7.1%}{'' if case.holds else '  DOES NOT HOLD'}"
        )
    errors = [case.error for case in found]
    print(f"{len(found)} cases, estimates from {min(errors):+.1%} to {max(errors):+.1%} of the measured peak")
    return 0 if all(case.holds for case in found) else 1


if __name__ == "__main__":
    sys.exit(main())
