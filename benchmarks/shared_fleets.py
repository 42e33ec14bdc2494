"""The fleets that `shared.py` compares: each is one server with the same models, behind a different handler.

Memory and CPU time are measured over all Python processes that serve models: workers and engine processes. The server
itself is left out, and so is the process from which the embedded server forks its workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from handler_load import load, register
from handler_models import HANDLER, STOCK_COPY, Shape, texts_of_mixed_lengths, write_model, write_weights

from cohost.callers import new_token
from cohost.deploy.local_aws import check_port
from local_aws.engines.djl import DjlEngine
from local_aws.engines.embedded import EmbeddedEngine
from local_aws.engines.engine import Setup
from local_aws.engines.machine import memory_by_process
from local_aws.engines.serving import free_port, started_engine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from handler_load import Sample

    from local_aws.engines.report import Server

PAST_COMMIT = "cf2b027"
"""The last commit whose batching handler runs the model in the worker process itself."""
SHARED, PROXIED, PAST, STOCK = "shared", "batched", f"batched of {PAST_COMMIT}", "stock"
VOCABULARY = 30_522
# As on the real server, every process imports torch for itself.
ENVIRONMENT = {"COHOST_LMI_PRELOAD": "false", "SAGEMAKER_MULTI_MODEL": "true"}
_START_TIMEOUT_S = 300.0
_ENGINE_PROGRAM = "cohost_host.py"


def past_handler(folder: Path) -> Path | None:
    """Write the handler of commit PAST_COMMIT below `folder`, and return its folder; None if git lacks the commit."""
    archive = subprocess.run(  # noqa: S603 - git, with fixed arguments
        ["git", "archive", "--format=tar", PAST_COMMIT, "cohost/handler"],  # noqa: S607 - the user's git
        cwd=Path(__file__).parents[1],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        print(f"{PAST} is left out: {archive.stderr.decode().strip()}", file=sys.stderr)
        return None
    file = folder.with_suffix(".tar")
    file.write_bytes(archive.stdout)
    shutil.unpack_archive(file, folder, filter="data")
    return folder / "cohost" / "handler"


@dataclass(frozen=True)
class Fleet:
    """A fleet of models behind one handler; `folders` has the models' folders in the order of loading."""

    name: str
    folders: Sequence[Path]


def write_fleets(root: Path, options: argparse.Namespace) -> dict[str, Fleet]:
    """Write the model folders of all fleets below `root`; each model of a fleet has its own copy of the weights."""
    weights = write_weights(root / "weights", Shape("bert", options.layers, options.hidden), options.vocabulary)
    most = max(options.models)
    copies = [shutil.copytree(weights, root / f"weights-{number}") for number in range(most)]
    device = {"device": options.device}
    kinds: dict[str, tuple[str, int, Path | None, dict[str, Any]]] = {
        SHARED: ("batched", most, HANDLER, {"shared": "true"} | device),
        PROXIED: ("batched", max((n for n in options.models if n <= options.most_proxied), default=0), HANDLER, device),
        PAST: ("batched", most, past_handler(root / "past"), device),
        STOCK: (STOCK_COPY, most, HANDLER, device) if options.device == "cuda" else (STOCK, most, HANDLER, {}),
    }
    fleets = {}
    for name, (handler, count, code, given) in kinds.items():
        if code is not None and name in options.fleets:
            folders = [root / name.replace(" ", "-") / f"model-{number}" for number in range(count)]
            for folder, copy in zip(folders, copies, strict=False):
                write_model(folder, copy, handler, code, **given)
            fleets[name] = Fleet(name, folders)
    return fleets


def bodies(number: int = 1024) -> list[bytes]:
    """Return request bodies with one text each, of mixed lengths; they are the same in each run."""
    return [
        json.dumps({"inputs": text, "parameters": {"truncation": True}}).encode()
        for text in texts_of_mixed_lengths(number)
    ]


@dataclass
class RunningFleet:
    """A running server that has loaded some models of a fleet; `load_s` has the seconds of each model's load."""

    fleet: Fleet
    server: Server
    embedded: bool
    load_s: list[float] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return the names of the loaded models."""
        return [folder.name for folder in self.fleet.folders[: len(self.load_s)]]

    async def load(self, count: int) -> None:
        """Load further models until `count` models are loaded."""
        for folder in self.fleet.folders[len(self.load_s) : count]:
            started = time.perf_counter()
            await register(self.server, folder.name, folder)
            self.load_s.append(time.perf_counter() - started)

    async def call(self, texts: Sequence[bytes], clients: int, seconds: float) -> tuple[Sample, float]:
        """Call one model after the other; return the measurement, and the processes' CPU seconds for these calls."""
        before = self._cpu()
        sample = await load(self.server, self.names, texts, items=1, clients=clients, seconds=seconds)
        after = self._cpu()
        return sample, sum(seconds - before.get(process, 0.0) for process, seconds in after.items())

    def processes(self) -> list[psutil.Process]:
        """Return the Python processes that serve models."""
        return processes_of(self.server.pid, embedded=self.embedded)

    def memory(self) -> dict[str, float]:
        """Return the memory of the processes that serve models, in MiB: PSS, private pages, GPU memory if any."""
        pids = [process.pid for process in self.processes()]
        sums = {"pss": sum(pss_mib(pid) for pid in pids), "private": sum(private_mib(pid) for pid in pids)}
        gpu = memory_by_process()
        return sums if gpu is None else {**sums, "gpu": float(sum(mib for pid, mib in gpu.items() if pid in pids))}

    def kill(self) -> None:
        """Kill the server, like a container that exceeds its memory limit."""
        os.kill(self.server.pid, signal.SIGKILL)

    def _cpu(self) -> dict[psutil.Process, float]:
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                found[process] = times.user + times.system
        return found


def pss_mib(process: int) -> float:
    """Return a process's memory in MiB (PSS: a page of n processes counts as 1/n); 0 if the process has ended."""
    return _rollup_mib(process, {"Pss:"})


def private_mib(process: int) -> float:
    """Return the MiB of a process's memory that it shares with no other process; 0 if the process has ended."""
    return _rollup_mib(process, {"Private_Clean:", "Private_Dirty:"})


def _rollup_mib(process: int, names: set[str]) -> float:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        return sum(int(line.split()[1]) / 1024 for line in lines if line.split()[0] in names)
    return 0.0


def processes_of(server: int, *, embedded: bool) -> list[psutil.Process]:
    """Return the workers and engine processes of a server.

    When the worker that started an engine process has ended, the engine process is no descendant of the server any
    more, but its command line names the server.
    """
    try:
        family = psutil.Process(server).children(recursive=True)
        # The embedded server's own child is the process that workers are forked from.
        forker = {one.pid for one in psutil.Process(server).children()} if embedded else set()
    except psutil.Error:
        return []
    workers = [one for one in family if one.pid not in forker]
    servers = {server, *(one.pid for one in family)}
    known = {one.pid for one in family}
    workers += [one for one, parent in engine_processes() if parent in servers and one.pid not in known]
    return [one for one in workers if _runs(one)]


def _runs(process: psutil.Process) -> bool:
    """Return True if a process runs; a process that has ended, but whose exit code is not collected, does not run."""
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def engine_processes() -> Iterator[tuple[psutil.Process, int]]:
    """Yield all engine processes of this machine, each with the process id of its server."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ValueError, IndexError, KeyError):
            arguments = process.cmdline()
            if Path(arguments[-2]).name == _ENGINE_PROGRAM:
                yield process, json.loads(arguments[-1])["server"]


@contextlib.contextmanager
def running(fleet: Fleet, root: Path, options: argparse.Namespace) -> Iterator[RunningFleet]:
    """Start a server for a fleet, without models; when the block ends, end all its processes."""
    name = f"{fleet.name.replace(' ', '-')}-{time.monotonic_ns()}"
    engine = DjlEngine(options.djl_home) if options.engine == "djl" else EmbeddedEngine()
    scratch = root / "servers" / name
    scratch.mkdir(parents=True)
    # CUDA must not be initialised in a process that forks.
    environment = ENVIRONMENT | ({"PYTORCH_NVML_BASED_CUDA_CHECK": "1"} if options.device == "cuda" else {})
    setup = Setup(
        image="",
        models=scratch,
        scratch=scratch,
        port=free_port(),
        upstream_port=free_port(),
        token=new_token(),
        environment=environment,
        handlers={"batched", "stock"},
        hubs=[root],
        weights={},
    )
    check_port(setup.port)
    engine.check(setup)
    try:
        with started_engine(
            engine,
            setup,
            instance_type=None,
            start_timeout_s=_START_TIMEOUT_S,
            warn=lambda text: print(text, file=sys.stderr),
        ) as server:
            yield RunningFleet(fleet, server, embedded=options.engine == "embedded")
    finally:
        options.log.parent.mkdir(parents=True, exist_ok=True)
        with options.log.open("ab") as log:
            log.write(f"== {fleet.name}\n".encode() + (scratch / f"{engine.name}.log").read_bytes())
