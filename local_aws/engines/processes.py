"""The processes of a server: what each holds in memory, and which model it works for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from local_aws.engines.programs import answer_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MIB = 1024 * 1024
_KIB_PER_MIB = 1024
_MODEL_DIR = "--model-dir"
_WORKER = re.compile(r'cohost_worker_resident_bytes\{Model="(?P<model>[^"]*)",pid="(?P<pid>\d+)"\}')
_ZYGOTE = "local_aws.lmi.worker.zygote"
_COLUMNS = 3


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: resident memory in MiB, and the MiB of GPU memory (None where nobody tells)."""

    pid: int
    role: str
    resident_mb: int
    gpu_mb: int | None


def worker_models(counters: str) -> dict[int, str]:
    """The model of each worker by process id, from the embedded container's counters; other servers do not tell."""
    return {int(match["pid"]): match["model"] for match in _WORKER.finditer(counters)}


def processes_below(pid: int, models: Mapping[int, str], gpu_memory: Mapping[int, int] | None) -> list[Process]:
    """A process of this machine and all below it; none when it has ended."""
    return [_process(number, arguments, resident, models, gpu_memory) for number, arguments, resident in _family(pid)]


def processes_of_container(name: str, gpu_memory: Mapping[int, int] | None) -> list[Process]:
    """The processes of a Docker container, with the host's process ids."""
    answer = answer_of(["docker", "top", name, "-eo", "pid,rss,args"]) or ""
    rows = [line.split(None, _COLUMNS - 1) for line in answer.splitlines()[1:]]
    return [
        _process(int(pid), arguments.split(), int(resident) // _KIB_PER_MIB, {}, gpu_memory)
        for pid, resident, arguments in (row for row in rows if len(row) == _COLUMNS)
    ]


def _family(pid: int) -> Iterator[tuple[int, Sequence[str], int]]:
    try:
        parent = psutil.Process(pid)
        family: Iterable[psutil.Process] = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            yield process.pid, process.cmdline(), process.memory_info().rss // _MIB
        except psutil.Error:  # it has ended meanwhile, or is another user's
            continue


def _process(
    pid: int,
    arguments: Sequence[str],
    resident_mb: int,
    models: Mapping[int, str],
    gpu_memory: Mapping[int, int] | None,
) -> Process:
    gpu_mb = None if gpu_memory is None else gpu_memory.get(pid, 0)
    role = f"worker of {models[pid]}" if pid in models else _role(arguments)
    return Process(pid=pid, role=role, resident_mb=resident_mb, gpu_mb=gpu_mb)


def _role(arguments: Sequence[str]) -> str:
    """What a process is for: DJL Serving starts a worker with the folder of its model among the arguments."""
    if _MODEL_DIR in arguments[:-1]:
        folder = Path(arguments[arguments.index(_MODEL_DIR) + 1])
        return f"worker of {folder.parent.name if folder.name == 'model' else folder.name}"
    if _ZYGOTE in arguments:
        return "parent of workers"
    program = Path(arguments[0]).name if arguments else "?"
    return f"server ({program})"
