"""Text of answers, error messages, memory errors, counters, processor flags, precision: parts without a model."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from cohost.handler.cohost_batches import BatchLog, Counters, TokenBudget
from cohost.handler.cohost_device import device_of, disagreement, has_native_bf16, set_threads
from cohost.handler.cohost_errors import one_line, shown
from cohost.handler.cohost_options import read_options
from cohost.handler.cohost_request import list_text, text_of, vector_text
from cohost.handler.cohost_warm_up import bucket_shapes, pass_cost
from cohost.handler.cohost_zero_shot import entailment_index

if TYPE_CHECKING:
    from cohost.handler.cohost_tasks import Floats


def floats(*values: float) -> Floats:
    """An output."""
    return np.asarray(values, dtype=np.float32)


def test_vectors_are_written_as_the_standard_library_would() -> None:
    """Byte for byte, at the nesting of feature-extraction."""
    value = [[[[0.5, -1e-07, 3.0], [1.0, 2.0, 1e30]]]]
    tokens = list_text((vector_text(row, 3) for row in value[0][0]), 2)
    assert list_text([list_text([tokens], 1)], 0) == text_of(value)
    assert list_text([], 0) == json.dumps([], indent=2)


def test_answers_never_hold_nan() -> None:
    """An answer never has NaN, which JSON cannot express."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        text_of([float("nan")])


def test_errors_fit_a_status_line() -> None:
    """The text of an error is one short line of ASCII, because it becomes the reason of a status line."""
    assert one_line("a\r\nX: 한") == "a X: \\ud55c"
    assert len(one_line("x" * 10_000)) == 500
    assert len(shown("x" * 10_000)) < 100


def test_the_budget_shrinks_when_memory_runs_out_and_recovers() -> None:
    """The token budget halves when memory runs out, keeps one full sequence, and recovers after a pause."""
    budget = TokenBudget(4096, 512)
    budget.shrink(2048, now=10.0)
    assert budget.tokens == 1024
    budget.shrink(600, now=10.5)
    budget.passed(now=70.0)
    assert budget.tokens == 512
    for _ in range(10):
        budget.passed(now=71.0)
    assert budget.tokens == 4096


def test_a_budget_that_never_fits_is_tried_ever_less_often() -> None:
    """On a device that is full, larger passes are tried less and less often, in the end once an hour."""
    budget, failures = TokenBudget(16_384, 512), []
    for now in map(float, range(86_400)):
        if budget.tokens > 6000:
            failures.append(now)
            budget.shrink(budget.tokens, now)
        else:
            budget.passed(now)
    assert (len([one for one in failures if one < 3600]), len(failures)) == (7, 30)


def test_counters_say_what_the_device_worked_on(caplog: pytest.LogCaptureFixture) -> None:
    """The log line of counters covers the time since the last one, and comes at most as often as set."""
    counters = Counters(passes=10, sequences=10)
    log = BatchLog(counters, interval_s=60, now=0.0)
    counters.passes, counters.sequences, counters.tokens, counters.padded_tokens = 12, 26, 75, 100
    with caplog.at_level(logging.INFO):
        log.tick(59.0)
        assert not caplog.messages
        log.tick(61.0)
    assert "2 passes, 8.0 sequences a pass, 75 tokens, 25% padding" in caplog.messages[0]


def test_native_bf16_is_read_from_the_processor_flags() -> None:
    """Native bf16 is detected by the exact processor flags of x86 and Arm."""
    assert has_native_bf16("flags\t\t: fpu avx512f avx512_bf16")
    assert has_native_bf16("flags : amx_bf16")
    assert has_native_bf16("Features : fp asimd bf16")
    assert not has_native_bf16("flags : avx512f avx512_vnni\nmodel name : bf16")


def test_threads_share_the_cores_only_where_waiting_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several models share the cores only if waiting threads sleep, because spinning threads slow others."""
    monkeypatch.setattr("cohost.handler.cohost_device._cores", lambda: 8)
    given = {"model_dir": "/m", "cpu.maxWorkers": "2"}
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        assert set_threads(read_options(given), torch.device("cpu")) == 4
        monkeypatch.delenv("OMP_WAIT_POLICY")
        assert set_threads(read_options(given), torch.device("cpu")) == 1
        assert set_threads(read_options(given | {"threads": "3"}), torch.device("cpu")) == 3
    finally:
        torch.set_num_threads(before)


def driver_is_too_old() -> None:
    """CUDA's own reason for a GPU that cannot be used."""
    raise RuntimeError("The NVIDIA driver is too old")


def test_a_gpu_that_the_server_does_not_name_is_left_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without a named GPU warns that it runs on the CPU, unless the catalog names the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of(read_options({"model_dir": "/m"})).type == "cpu"
    assert "device: auto is the CPU, since the server named no GPU" in caplog.text
    caplog.clear()
    assert device_of(read_options({"model_dir": "/m", "device": "cpu"})).type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of(read_options({"model_dir": "/m"})).type == "cpu"
    assert not caplog.messages


def test_a_gpu_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing GPU is an error with CUDA's reason, because a silent CPU would be a hundred times slower."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", driver_is_too_old)
    with pytest.raises(ValueError, match=r"device: cuda needs a GPU, .*\(RuntimeError: The NVIDIA driver is too old"):
        device_of(read_options({"model_dir": "/m", "device": "cuda"}))
    assert device_of(read_options({"model_dir": "/m", "device_id": "-1"})).type == "cpu"


def test_workers_take_the_gpu_that_the_server_gave_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker uses the GPU with the number from the server, or the only visible one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of(read_options({"model_dir": "/m", "device_id": "1"})) == torch.device("cuda:1")
    assert device_of(read_options({"model_dir": "/m", "device_id": "3"})) == torch.device("cuda:0")


@pytest.mark.parametrize(
    ("got", "labels", "problem"),
    [
        (floats(0.9, 0.1), True, None),
        (floats(0.1, 0.9), True, "another label"),
        (floats(np.nan, 0.1), True, "not finite"),
        (floats(np.inf, 0.1), False, "not finite"),
        (floats(0.9, 0.1), False, None),
        (floats(0.0, 1.0), False, "cosine 0.196"),
    ],
)
def test_a_format_is_refused_for_what_a_caller_would_see(got: Floats, labels: bool, problem: str | None) -> None:  # noqa: FBT001
    """A number that is not finite, another label, a vector in another direction."""
    found = disagreement([floats(1.0, 0.2)], [got], labels=labels)
    assert found is None if problem is None else problem in str(found)


def test_the_entailment_index_is_found_by_name_or_refused() -> None:
    """The pipeline of transformers would take the last output without a word."""
    assert entailment_index({"contradiction": 0, "Entailment": 2}, "m") == 2
    with pytest.raises(ValueError, match="m has the labels LABEL_0, LABEL_1, and zero-shot-classification needs one"):
        entailment_index({"LABEL_0": 0, "LABEL_1": 1}, "m")


def test_warm_up_goes_over_all_lengths_longest_first() -> None:
    """The warm-up starts with the longest texts, so the memory of the largest batch is reserved once."""
    assert list(bucket_shapes(100, 400, 16)) == [(4, 100), (6, 64), (12, 32), (16, 16)]


def test_the_cost_of_a_pass_is_what_tokens_do_not_explain() -> None:
    """The fixed cost of a pass is computed from two passes: 2 ms for 8 and 10 ms for 408 tokens are 92 tokens."""
    assert pass_cost(0.002, 8, 0.010, 408) == 92
    assert pass_cost(0.002, 8, 0.001, 408) >= 0
