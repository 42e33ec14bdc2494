"""Activations: estimates compared with real forward passes, and their growth."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cohost.forecast.plan.shapes import peak_activation_bytes

if TYPE_CHECKING:
    from cohost.forecast.plan.profiles import Profile

BENCHMARK = Path(__file__).parents[4] / "benchmarks" / "activations.py"
MDEBERTA = "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"
XLMR = "joeddav/xlm-roberta-large-xnli"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("activations_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Importing torch and transformers takes 8 s of CPU time: minutes where each core has ten processes to run.
@pytest.mark.timeout(1200)
def test_estimates_hold_against_real_passes(benchmark: Any) -> None:
    """Random models of three architectures on the CPU: within 25 percent, never under by more than 10."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's profiler says how it clears its own events
        found = list(benchmark.cases("cpu", "fp32", quick=True))
    assert len(found) == 6
    assert [case for case in found if not case.holds] == []


@pytest.mark.parametrize("model_id", [MDEBERTA, XLMR])
def test_growth_with_batch(encoder_profiles: dict[str, Profile], model_id: str) -> None:
    """Twice the batch needs nearly twice the memory, because texts share only DeBERTa's positions."""
    shape = encoder_profiles[model_id].shape
    one, two = (peak_activation_bytes(shape, batch=n, tokens=512, element_bytes=4) for n in (8, 16))
    assert 1.9 < two / one <= 2.0


def test_long_texts_cost_deberta_by_the_square(encoder_profiles: dict[str, Profile]) -> None:
    """Four times the tokens need nearly sixteen times the memory in DeBERTa, which stores attention scores."""
    shape = encoder_profiles[MDEBERTA].shape
    short, long = (peak_activation_bytes(shape, batch=1, tokens=n, element_bytes=2) for n in (1024, 4096))
    assert 12 < long / short < 16


def test_largest_batch_of_xlmr_large(encoder_profiles: dict[str, Profile]) -> None:
    """64 texts of 512 tokens need 1.4 GiB in XLM-R large with fp32, and half of it with fp16."""
    shape = encoder_profiles[XLMR].shape
    fp32, fp16 = (peak_activation_bytes(shape, batch=64, tokens=512, element_bytes=n) / MIB for n in (4, 2))
    assert fp32 == pytest.approx(11 * 64 * 512 * 1024 * 4 / MIB + 16)
    assert fp16 == pytest.approx((fp32 - 16) / 2 + 16)
