"""What `nvidia-smi` tells: the GPUs, and the memory that each process takes of them."""

from __future__ import annotations

from dataclasses import dataclass

from local_aws.engines.programs import answer_of

_NUMBERS = "--format=csv,noheader,nounits"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU; memory in MiB."""

    index: int
    name: str
    used_mb: int
    total_mb: int


def gpus() -> list[Gpu]:
    """The GPUs of this machine; none where `nvidia-smi` is not there or does not answer."""
    answer = answer_of(["nvidia-smi", "--query-gpu=index,name,memory.used,memory.total", _NUMBERS])
    rows = [_cells(line) for line in (answer or "").splitlines() if line.strip()]
    return [
        Gpu(index=int(index), name=name, used_mb=int(used), total_mb=int(total)) for index, name, used, total in rows
    ]


def memory_by_process() -> dict[int, int] | None:
    """MiB of GPU memory by process id, over all GPUs; None where nvidia-smi does not answer.

    In a container without the host's process ids, and under some drivers, nvidia-smi gives "[N/A]": such a process is
    left out.
    """
    answer = answer_of(["nvidia-smi", "--query-compute-apps=pid,used_memory", _NUMBERS])
    if answer is None:
        return None
    taken: dict[int, int] = {}
    for line in answer.splitlines():
        pid, used, *_ = [*_cells(line), ""]
        if pid.isdigit() and used.isdigit():
            taken[int(pid)] = taken.get(int(pid), 0) + int(used)
    return taken


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]
