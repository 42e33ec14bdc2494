"""Programs, processes and GPUs of this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_TIMEOUT_S = 60.0


def find_program(name: str, *, needed_for: str, fix: str) -> str:
    """Return the path of a program.

    Raises:
        EngineError: the program is not on PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise EngineError("program-missing", needed_for, f"{name} is not on PATH", fix=fix)
    return path


def output_of(command: Sequence[str], timeout_s: float | None = _TIMEOUT_S) -> str | None:
    """Run a program and return its output; None if the program is missing, fails, or exceeds the timeout."""
    try:
        result = subprocess.run(  # noqa: S603 - a list, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def run_program(
    command: Sequence[str], *, field: str, problem: str, fix: str, timeout_s: float | None = _TIMEOUT_S
) -> str:
    """Run a program and return its output.

    Raises:
        EngineError: the program failed; the text is `problem` and the last line of the program's output.
    """
    try:
        result = subprocess.run(  # noqa: S603 - a list, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("program-failed", field, f"{problem} ({error})", fix=fix) from error
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()[-1]
        raise EngineError("program-failed", field, f"{problem} ({said})", fix=fix)
    return result.stdout


_MIB = 1024 * 1024
_KIB_PER_MIB = 1024
_MODEL_DIR = "--model-dir"
_WORKER = re.compile(r'cohost_worker_resident_bytes\{Model="(?P<model>[^"]*)",pid="(?P<pid>\d+)"\}')
_ENGINE = "cohost_host.py"
_ZYGOTE = "local_aws.lmi.workers.zygote"
_COLUMNS = 3


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a server: its resident memory and its GPU memory in MiB (None if unknown)."""

    pid: int
    role: str
    resident_mb: int
    gpu_mb: int | None


def worker_models(counters: str) -> dict[int, str]:
    """Return the model of each worker by process id, from the metrics text, which only the embedded container has."""
    return {int(match["pid"]): match["model"] for match in _WORKER.finditer(counters)}


def processes_below(
    pid: int, models: Mapping[int, str], gpu_memory: Mapping[int, int] | None, engines: Mapping[int, str]
) -> list[Process]:
    """Return the process `pid`, all its descendants, and the engine processes, which may outlive their parent process.

    `engines` maps the process ids of engine processes to role texts for reports. The answer is an empty list if the
    process `pid` has ended.
    """
    return [
        _process(number, arguments, resident, models, gpu_memory, engines)
        for number, arguments, resident in _family(pid, engines)
    ]


def processes_of_container(name: str, gpu_memory: Mapping[int, int] | None) -> list[Process]:
    """Return the processes of a Docker container, with their process ids on the host."""
    answer = output_of(["docker", "top", name, "-eo", "pid,rss,args"]) or ""
    rows = [line.split(None, _COLUMNS - 1) for line in answer.splitlines()[1:]]
    return [
        _process(int(pid), arguments.split(), int(resident) // _KIB_PER_MIB, {}, gpu_memory, {})
        for pid, resident, arguments in (row for row in rows if len(row) == _COLUMNS)
    ]


def _family(pid: int, others: Iterable[int]) -> Iterator[tuple[int, Sequence[str], int]]:
    try:
        parent = psutil.Process(pid)
        family = {process.pid: process for process in (parent, *parent.children(recursive=True))}
    except psutil.NoSuchProcess:
        return
    for other in others:
        with contextlib.suppress(psutil.Error):
            family.setdefault(other, psutil.Process(other))
    for process in family.values():
        try:
            yield process.pid, process.cmdline(), process.memory_info().rss // _MIB
        except psutil.Error:  # the process has ended, or belongs to another user
            continue


def _process(
    pid: int,
    arguments: Sequence[str],
    resident_mb: int,
    models: Mapping[int, str],
    gpu_memory: Mapping[int, int] | None,
    engines: Mapping[int, str],
) -> Process:
    gpu_mb = None if gpu_memory is None else gpu_memory.get(pid, 0)
    role = engines.get(pid) or (f"worker of {models[pid]}" if pid in models else _role(arguments))
    return Process(pid=pid, role=role, resident_mb=resident_mb, gpu_mb=gpu_mb)


def _role(arguments: Sequence[str]) -> str:
    """Return a process's role from its arguments; a DJL Serving worker has its model's folder as an argument."""
    if _MODEL_DIR in arguments[:-1]:
        folder = Path(arguments[arguments.index(_MODEL_DIR) + 1])
        return f"worker of {folder.parent.name if folder.name == 'model' else folder.name}"
    if any(Path(argument).name == _ENGINE for argument in arguments[1:2]):
        return "engine process"
    if _ZYGOTE in arguments:
        return "parent of workers"
    program = Path(arguments[0]).name if arguments else "?"
    return f"server ({program})"


_NUMBERS = "--format=csv,noheader,nounits"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of this machine, with its used and total memory in MiB."""

    index: int
    name: str
    used_mb: int
    total_mb: int


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine; an empty list if `nvidia-smi` is missing or does not answer."""
    answer = output_of(["nvidia-smi", "--query-gpu=index,name,memory.used,memory.total", _NUMBERS])
    rows = [_cells(line) for line in (answer or "").splitlines() if line.strip()]
    return [
        Gpu(index=int(index), name=name, used_mb=int(used), total_mb=int(total)) for index, name, used, total in rows
    ]


def memory_by_process() -> dict[int, int] | None:
    """Return each process's memory on all GPUs in MiB, by process id; None if nvidia-smi does not answer.

    Processes for which nvidia-smi prints "[N/A]" are omitted. The text "[N/A]" appears in a container without the
    host's process ids, and under some drivers.
    """
    answer = output_of(["nvidia-smi", "--query-compute-apps=pid,used_memory", _NUMBERS])
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
