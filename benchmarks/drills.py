"""Fault drills on the embedded container: calls must succeed even if engine processes die, hang or lose the device.

`python benchmarks/drills.py` runs all drills with `handler: shared` and with `handler: batched`, in about five minutes
on two quiet cores, and exits with 1 if one fails. Clients call up to six tiny models without a pause; meanwhile an
engine process is killed, hangs, or loses its device. Every call must be answered with 200. The one exception is a call
whose text kills every engine process that runs it. The call with that text must fail with 500, after at most two engine
processes have died of it, and all other calls must succeed. Another drill loads, calls and unloads a model many times,
and must leave no process, file or used memory behind. In every drill the server's `/ping` is sampled, and must answer
200 each time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from handler_models import HANDLER, TOKENIZER, write_model
from shared_fleets import private_mib, processes_of

from local_aws.lmi.container import Container

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HANDLERS = ("shared", "batched")
OK, FAILED = 200, 500
POISON_TOKENS = 17
# Added to the handler: a text of 17 tokens kills its engine process, as a fault in a driver does.
_POISON = f"""
import os as _os
_launch = Forward.launch

def _poisoned(self, sequences):
    if any(len(one.encoded.ids) == {POISON_TOKENS} for one in sequences):
        _os.kill(_os.getpid(), 9)
    return _launch(self, sequences)

Forward.launch = _poisoned
"""
_POISONED_TEXT = " ".join(["movie"] * (POISON_TOKENS - 2))
_IDLE = "_IDLE_S: Final = 30.0"
_PASS_TIMEOUT_S = 2
_PING_S, _LOOK_S = 0.1, 0.05
_CALL_S = 120.0
_EVENT_S = 120.0
MOST_LIVES_OF_POISON = 2
MOST_KIB_PER_ROUND = 100.0
_SETTLED = 10
"""The rounds after which caches have filled, and memory may not grow any more."""
_EXTRA = "extra"
_KEPT_SUFFIXES = (".lock", ".findings")


@dataclass
class Result:
    """A drill's result: counts of the calls' statuses and of `/ping` samples, notes to print, and faults."""

    drill: str
    handler: str
    calls: Counter[int] = field(default_factory=Counter)
    pings: Counter[bool] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """Return the result as a line of text."""
        calls = ", ".join(f"{number} x {status}" for status, number in sorted(self.calls.items()))
        text = f"{self.handler:<8} {self.drill:<12} calls: {calls}; /ping: {self.pings[True]} x 200"
        text += "".join(f"; {note}" for note in self.notes)
        return f"{'FAILED' if self.faults else 'passed'}  {text}" + "".join(f"\n        {one}" for one in self.faults)


def write_models(root: Path, handler: str, names: list[str], idle_s: float | None) -> dict[str, Path]:
    """Write folders of tiny models whose handler dies of a certain text; return them by the models' names.

    An engine process without a model ends after `idle_s` seconds; None means the handler's own time.
    """
    code = root / "code"
    shutil.copytree(HANDLER, code, ignore=shutil.ignore_patterns("__pycache__"))
    with (code / "cohost_forward.py").open("a") as file:
        file.write(_POISON)
    if idle_s is not None:
        place = code / "cohost_place.py"
        before, found, after = place.read_text(encoding="utf-8").partition(_IDLE)
        if not found:
            raise ValueError(f"{place} has no line {_IDLE!r}")
        place.write_text(f"{before}_IDLE_S: Final = {idle_s}{after}", encoding="utf-8")
    shared = {"shared": "true"} if handler == "shared" else {}
    return {
        name: write_model(root / "models" / name, TOKENIZER, "batched", code, pass_timeout_s=_PASS_TIMEOUT_S, **shared)
        for name in names
    }


class Site:
    """A running container with the drills' models, and the clients that call them."""

    def __init__(self, container: Container, client: httpx.AsyncClient, handler: str, models: dict[str, Path]) -> None:
        self.container = container
        self.handler = handler
        self.models = models
        self.names = [name for name in models if name != _EXTRA]
        self._client = client

    async def load(self, name: str) -> None:
        """Load a model; any answer but 200 ends the program."""
        body = {"model_name": name, "url": str(self.models[name])}
        (await self._client.post("/models", json=body)).raise_for_status()

    async def unload(self, name: str) -> None:
        """Unload a model; any answer but 200 ends the program."""
        (await self._client.delete(f"/models/{name}")).raise_for_status()

    async def call(self, name: str, text: str) -> httpx.Response:
        """Call a model with one text."""
        return await self._client.post(f"/models/{name}/invoke", json={"inputs": text})

    async def engine(self, name: str) -> tuple[int, int]:
        """Return the process id of a model's engine process, and the number of its engine processes so far."""
        answer = await self._client.post(f"/models/{name}/invoke", content=b"{}", headers={"cohost-counters": "true"})
        counters = answer.raise_for_status().json()
        return counters["engine_pid"], counters["engine_starts"]

    async def engines(self) -> dict[str, tuple[int, int]]:
        """Return, for each model, the result of `engine`."""
        return {name: await self.engine(name) for name in self.names}

    async def inject(self, fault: str, engines: dict[str, tuple[int, int]]) -> None:
        """Inject a fault into each of the engine processes that `engines` returned."""
        # One model for each process: the process that follows may be there before the next fault is injected.
        for name in {process: name for name, (process, _) in engines.items()}.values():
            body = {"model": name, "fault": fault}
            (await self._client.put("/_cohost/worker-faults", json=body)).raise_for_status()

    @contextlib.asynccontextmanager
    async def under_load(self, result: Result, clients: int) -> AsyncIterator[None]:
        """Inside the block, sample `/ping`, and let clients call all models, one after the other."""
        ended = asyncio.Event()

        async def ping() -> None:
            while not ended.is_set():
                result.pings[await self.container.ping()] += 1
                await asyncio.sleep(_PING_S)

        async def client(number: int) -> None:
            while not ended.is_set():
                number += clients
                name, words = self.names[number % len(self.names)], 1 + number % (POISON_TOKENS - 3)
                status, text = await self._status(name, " ".join(["great"] * words))
                result.calls[status] += 1
                if status != OK:
                    result.faults.append(f"a call of {name} got {status} {text:.200}")

        tasks = [asyncio.create_task(ping()), *(asyncio.create_task(client(number)) for number in range(clients))]
        try:
            yield
        finally:
            ended.set()
            await asyncio.gather(*tasks)
        if result.pings[False]:
            result.faults.append(f"/ping did not answer 200 in {result.pings[False]} of {result.pings.total()} samples")

    async def _status(self, name: str, text: str) -> tuple[int, str]:
        try:
            answer = await self.call(name, text)
        except httpx.HTTPError as error:
            return 0, repr(error)
        return answer.status_code, answer.text


@contextlib.asynccontextmanager
async def site(root: Path, handler: str, models: int, log: Path, idle_s: float | None = None) -> AsyncIterator[Site]:
    """Run a container with `models` models; when the block ends, end all its processes."""
    names = [f"model-{number}" for number in range(models)]
    folders = write_models(root, handler, [*names, _EXTRA], idle_s)
    for folder in ("store", "tmp"):
        (root / folder).mkdir()
    container = await Container.start(
        model_store=root / "store",
        multi_model=True,
        hub_roots=[root],
        log_file=log,
        environment={"SAGEMAKER_MULTI_MODEL": "true", "TMPDIR": str(root / "tmp")},
    )
    try:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=container.url, headers=container.headers, timeout=_CALL_S, trust_env=False, limits=limits
        ) as client:
            running = Site(container, client, handler, folders)
            for name in names:
                await running.load(name)
            yield running
    finally:
        await container.stop()


async def eventually(true: Callable[[], Awaitable[bool]], what: str, result: Result) -> None:
    """Wait until `true` returns True; record a fault if it does not within two minutes."""
    limit = time.monotonic() + _EVENT_S
    while not await true():
        if time.monotonic() > limit:
            result.faults.append(f"after {_EVENT_S:g} s still not: {what}")
            return
        await asyncio.sleep(_LOOK_S)


async def replaced(running: Site, before: dict[str, tuple[int, int]], result: Result) -> None:
    """Wait until every model has a new engine process; note how many new ones each model had at most."""

    async def all_new() -> bool:
        now = await running.engines()
        return all(now[name][0] != process for name, (process, _) in before.items())

    started = time.monotonic()
    await eventually(all_new, "every model has a new engine process", result)
    after = await running.engines()
    lives = max(after[name][1] - starts for name, (_, starts) in before.items())
    result.notes.append(f"{lives} new engine processes, back after {time.monotonic() - started:.1f} s")


async def drill_fault(running: Site, fault: str, options: argparse.Namespace) -> Result:
    """Under load, let every engine process die, hang or lose its device; no call may fail."""
    result = Result(fault, running.handler)
    for _ in range(options.times):
        async with running.under_load(result, options.clients):
            await asyncio.sleep(options.seconds)
            before = await running.engines()
            if fault == "kill":
                for process in {process for process, _ in before.values()}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            else:
                await running.inject(fault, before)
            await replaced(running, before, result)
            await asyncio.sleep(options.seconds)
    return result


async def drill_poison(running: Site, options: argparse.Namespace) -> Result:
    """Under load, send a text that kills each engine process that runs it; only its own call may fail."""
    result = Result("poison", running.handler)
    name = running.names[0]
    for _ in range(options.times):
        async with running.under_load(result, options.clients):
            await asyncio.sleep(options.seconds)
            _, before = await running.engine(name)
            answer = await running.call(name, _POISONED_TEXT)
            if answer.status_code != FAILED:
                result.faults.append(f"the poisoned call got {answer.status_code} {answer.text:.200}, not {FAILED}")
            _, after = await running.engine(name)
            await asyncio.sleep(options.seconds)
        result.notes.append(f"the poisoned call got {answer.status_code}, {after - before} engine processes ended")
        if after - before > MOST_LIVES_OF_POISON:
            result.faults.append(f"the poisoned call ended {after - before} engine processes")
    return result


async def drill_rounds(running: Site, root: Path, options: argparse.Namespace) -> Result:
    """Load, call and unload one more model, many times; no process or file may stay, and memory may not grow."""
    result = Result("rounds", running.handler)
    processes, files, memory = _processes(running), _files(root), []

    async def as_before() -> bool:
        return _processes(running) <= processes

    async with running.under_load(result, 0):
        for _ in range(options.load_rounds):
            await running.load(_EXTRA)
            answer = await running.call(_EXTRA, "great")
            result.calls[answer.status_code] += 1
            if answer.status_code != OK:
                result.faults.append(f"a call got {answer.status_code} {answer.text:.200}")
            await running.unload(_EXTRA)
            await eventually(as_before, "the processes are those from before the load", result)
            memory.append(sum(private_mib(one.pid) for one in processes))
    left_files = sorted(_files(root) - files)
    result.notes.append(f"{len(left_files)} new files")
    if len(left_files) > len(_KEPT_SUFFIXES) or any(not file.endswith(_KEPT_SUFFIXES) for file in left_files):
        result.faults.append(f"{len(left_files)} files stay: {', '.join(left_files[:6])}")
    settled = memory[min(_SETTLED, len(memory) // 2) :]
    if len(settled) > _SETTLED:
        slope = 1024 * statistics.linear_regression(range(len(settled)), settled).slope
        result.notes.append(f"memory {slope:+.0f} KiB per round")
        if slope >= MOST_KIB_PER_ROUND:
            result.faults.append(f"memory grows by {slope:.0f} KiB per round, {MOST_KIB_PER_ROUND:g} are allowed")
    return result


async def drill_end(running: Site, root: Path) -> Result:
    """Unload all models; the engine processes must end, and leave no socket."""
    result = Result("end", running.handler)

    async def empty() -> bool:
        return not _processes(running)

    async with running.under_load(result, 0):
        for name in running.names:
            await running.unload(name)
        await eventually(empty, "no process of a model", result)
    if left := sorted(file for file in _files(root) if not file.endswith(_KEPT_SUFFIXES)):
        result.faults.append(f"files stay: {', '.join(left)}")
    return result


def _processes(running: Site) -> set[Any]:
    return set(processes_of(running.container.pid, embedded=True))


def _files(root: Path) -> set[str]:
    """Return the files in the temporary folder of the container's processes, except the server's own cache."""
    return {
        str(file.relative_to(root / "tmp")) for folder in (root / "tmp").glob("cohost-*") for file in folder.rglob("*")
    }


async def run_drills(handler: str, options: argparse.Namespace) -> list[Result]:
    """Run the drills that the options name with one handler; print each result."""
    results = []
    with tempfile.TemporaryDirectory(prefix="drills-") as folder:
        root = Path(folder)
        async with site(root, handler, options.models, options.log, options.idle_s) as running:
            for drill in options.drills:
                if drill == "poison":
                    result = await drill_poison(running, options)
                elif drill == "rounds":
                    result = await drill_rounds(running, root, options)
                elif drill == "end":
                    result = await drill_end(running, root)
                else:
                    result = await drill_fault(running, drill, options)
                print(result.line, flush=True)
                results.append(result)
    return results


DRILLS = ("kill", "hang", "lose_device", "poison", "rounds", "end")


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--handlers", nargs="+", choices=HANDLERS, default=list(HANDLERS))
    add("--drills", nargs="+", choices=DRILLS, default=list(DRILLS), help="in this order; `end` unloads all models")
    add("--models", type=int, default=6, help="tiny models (default 6)")
    add("--clients", type=int, default=16, help="clients over the models (default 16)")
    add("--times", type=int, default=3, help="faults of a drill (default 3)")
    add("--seconds", type=float, default=1.0, help="load before and after a fault (default 1)")
    add("--load-rounds", type=int, default=50, help="loads and unloads of the drill `rounds` (default 50)")
    add("--idle-s", type=float, help="life of an engine process without a model (default: that of the handler)")
    add("--log", type=Path, default=Path(".cohost/drills.log"), help="the container's log")
    add("--output", type=Path, default=Path(".cohost/drills.json"), help="all results as JSON")
    return parser


def main() -> None:
    """Parse the command line and run."""
    options = command_line().parse_args()
    results = [result for handler in options.handlers for result in asyncio.run(run_drills(handler, options))]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps([vars(result) for result in results], indent=1, default=str))
    sys.exit(any(result.faults for result in results))


if __name__ == "__main__":
    main()
