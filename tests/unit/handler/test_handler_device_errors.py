"""Errors of a GPU: out of memory, a lost device or the model's own, and the probe that tells them apart."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from cohost.handler.cohost_memory import device_answers, free_device_memory, is_lost_device, is_out_of_memory
from cohost.handler.cohost_stream import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY, LOST, MODEL = "memory", "lost", "model"


def kind_of(error: Exception, *, answers: bool) -> str:
    """An error's kind on a device that answers the probe, or does not."""
    if is_out_of_memory(error, lambda: answers):
        return MEMORY
    return LOST if is_lost_device(error, lambda: answers) else MODEL


def refuse_to_probe() -> bool:
    """A probe that must not be needed."""
    raise AssertionError("the table knows this text")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MEMORY),
        (MemoryError(), MEMORY),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"), MEMORY),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), MEMORY),
        (RuntimeError("CUDA driver error: out of memory"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), MEMORY),
        (RuntimeError('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":1131'), MEMORY),
        (RuntimeError("CUDA error: device-side assert triggered"), LOST),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), LOST),
        (RuntimeError("CUDA driver error: an illegal memory access was encountered"), LOST),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), LOST),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), LOST),
        (RuntimeError("CUDA error: unspecified launch failure"), LOST),
        (RuntimeError("CUDA error: invalid configuration argument"), MODEL),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), MODEL),
        (RuntimeError("Triton Error [CUDA]: too many resources requested for launch"), MODEL),
    ],
)
def test_the_table_knows_what_an_error_means(error: Exception, kind: str) -> None:
    """Known errors are classified by text and type without a call of the GPU."""
    assert kind_of(error, answers=True) == kind
    if kind == MEMORY:
        assert is_out_of_memory(error, refuse_to_probe)
    assert is_lost_device(error, refuse_to_probe) is (kind == LOST)


@pytest.mark.parametrize(
    ("error", "if_answered"),
    [
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"), MODEL),
        (RuntimeError("CUDA error: unknown error"), MODEL),
        (RuntimeError("Triton Error [CUDA]: unknown error"), MODEL),
        (IndexError("index out of range in self"), MODEL),
        # Its text is a caller's.
        (KeyError("device-side assert"), MODEL),
    ],
)
def test_what_the_table_does_not_know_is_decided_by_a_probe(error: Exception, if_answered: str) -> None:
    """An unknown error is followed by a probe, because CUDA reports a lost device in any later call."""
    assert kind_of(error, answers=True) == if_answered
    assert kind_of(error, answers=False) == LOST


class FakeCuda:
    """A fake torch.cuda with memory on GPU 1 only, whose calls raise `error`."""

    def __init__(self, error: Exception | None = None, *, initialized: bool = True) -> None:
        self.calls: list[str] = []
        self._error = error
        self.is_initialized: Callable[[], bool] = lambda: initialized

    def device_count(self) -> int:
        """Return two devices."""
        return 2

    def memory_reserved(self, number: int) -> int:
        """Return memory for one of the two devices only."""
        return 1024 * number

    def synchronize(self, number: int) -> None:
        """Waits for nothing, or fails."""
        self.calls.append(f"synchronize {number}")
        if self._error is not None:
            raise self._error

    def empty_cache(self) -> None:
        """Frees nothing, or fails."""
        self.synchronize(1)


def fake_torch(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> None:
    """Let the handler's parts that may run before torch is imported find a torch with this GPU."""

    def ones(_size: int, *, device: str) -> Any:
        cuda.calls.append(device)
        return SimpleNamespace(item=lambda: 1.0)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, ones=ones))


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (None, True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
    ],
)
def test_the_probe_sends_a_number_there_and_back(
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    answered: bool,  # noqa: FBT001
) -> None:
    """The probe copies a number to each GPU that the process uses and back; out of memory is an answer too."""
    cuda = FakeCuda(error)
    fake_torch(monkeypatch, cuda)
    assert device_answers() is answered
    assert cuda.calls == ["cuda:1", "synchronize 1"]


def test_without_a_gpu_nothing_is_probed_and_torch_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU no probe runs and torch is not imported, because a restart must first answer a call."""
    cuda = FakeCuda(initialized=False)
    fake_torch(monkeypatch, cuda)
    assert device_answers()
    monkeypatch.delitem(sys.modules, "torch")
    assert device_answers()
    assert (cuda.calls, "torch" in sys.modules) == ([], False)


def test_memory_is_freed_on_a_lost_device_without_a_second_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Freeing memory on a lost device raises no error, which would hide the first one."""
    fake_torch(monkeypatch, FakeCuda(RuntimeError("CUDA error: device-side assert triggered")))
    free_device_memory()
    stream_of(torch.device("cuda")).free_memory()
    assert (
        caplog.messages == ["the GPU's cached memory cannot be returned: CUDA error: device-side assert triggered"] * 2
    )
