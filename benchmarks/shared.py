"""Compare many models in one engine process with as many batched workers and as many stock workers.

`python benchmarks/shared.py` takes about 40 minutes on two quiet cores. The program prints a verdict on each goal, and
exits with 1 if a bound that must be kept is missed in every round. Each model has the size of all-MiniLM-L6-v2, random
weights, and its own folder. Clients send texts of mixed lengths to one model after the other. The batched workers come
from an earlier commit, the last one in which a worker ran the model itself; without git's history, they are left out.

A fleet is one server with models behind one handler. First, each fleet is started alone to measure load times and
memory: if other fleets ran, they would share the pages of libraries, and PSS would count only a part of these pages.
Then all fleets run on one machine and are measured one after the other, in an order that each round reverses, so that a
busy machine slows all of them. The smallest and the largest of five ratios enclose the true median in 15 of 16 runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import shared_goals
from shared_fleets import PAST, PROXIED, SHARED, STOCK, RunningFleet, bodies, running, write_fleets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_fleets import Fleet

FLEETS = [SHARED, PROXIED, PAST, STOCK]
_WARM_CLIENTS, _WARM_S = 16, 1.0
_LOOK_S = 0.1
_MIB = 1024 * 1024
LIMIT_MIB = 4096
"""A memory limit in which many models have to work: the memory of an ml.c5.large, whose two CPUs this run supposes."""


@dataclass
class Results:
    """The measurements of all rounds.

    `loads` has, for each round and fleet, the seconds of each model's load, and the memory in MiB for each number of
    models. `turns` has, for each round, the measurements by the fleet, the number of models and the number of clients
    (`turn_name`). `limit` has, for each fleet, the outcome of the run in limited memory.
    """

    weights_mib: float
    loads: list[dict[str, Loads]] = field(default_factory=list)
    turns: list[dict[str, Turn]] = field(default_factory=list)
    limit: dict[str, Limited] = field(default_factory=dict)


@dataclass(frozen=True)
class Loads:
    """The loads of a fleet that runs alone: seconds of each model's load, and memory for each number of models."""

    seconds: list[float]
    memory: dict[int, dict[str, float]]


@dataclass(frozen=True)
class Turn:
    """One measurement of a fleet: texts per second, latencies in ms, CPU milliseconds per text."""

    rate: float
    p50: float
    p99: float
    cpu_ms: float


@dataclass(frozen=True)
class Limited:
    """The outcome of a run in limited memory; `models` were loaded, `survived` is False if the server was killed."""

    models: int
    peak_mib: float
    survived: bool


def turn_name(fleet: str, models: int, clients: int) -> str:
    """Return the key of a measurement in `Results.turns`."""
    return f"{fleet} | {models} | {clients}"


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


async def measure_loads(fleet: Fleet, root: Path, options: argparse.Namespace, texts: Sequence[bytes]) -> Loads:
    """Load a fleet's models into a new server, and measure load times, and memory after some calls."""
    memory: dict[int, dict[str, float]] = {}
    with running(fleet, root, options) as fleet_alone:
        for count in sorted(n for n in options.models if n <= len(fleet.folders)):
            await fleet_alone.load(count)
            await fleet_alone.call(texts, _WARM_CLIENTS, _WARM_S)
            memory[count] = fleet_alone.memory()
            pss = memory[count]["pss"]
            tell(f"  {fleet.name}: {count} models, {pss:.0f} MiB (PSS), last load {fleet_alone.load_s[-1]:.1f} s")
        return Loads(fleet_alone.load_s, memory)


async def take_turns(
    fleets: Sequence[RunningFleet], models: int, clients: int, options: argparse.Namespace, texts: Sequence[bytes]
) -> dict[str, Turn]:
    """Measure each fleet once, one after the other."""
    turns = {}
    for one in fleets:
        sample, cpu_s = await one.call(texts, clients, options.seconds)
        turn = Turn(sample.rate, sample.percentile(50), sample.percentile(99), 1000 * cpu_s / sample.items)
        turns[turn_name(one.fleet.name, models, clients)] = turn
        tell(
            f"  {models} models, {clients} clients, {one.fleet.name}: {turn.rate:.1f} items/s, p50 {turn.p50:.0f} ms, "
            f"p99 {turn.p99:.0f} ms, CPU {turn.cpu_ms:.1f} ms an item"
        )
    return turns


async def measure_turns(fleets: Sequence[Fleet], root: Path, options: argparse.Namespace, results: Results) -> None:
    """Run all fleets, with more and more models, and measure them one after the other in each round."""
    texts = bodies()
    results.turns = [{} for _ in range(options.rounds)]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running(fleet, root, options)) for fleet in fleets]
        for models in sorted(options.models):
            present = [one for one in servers if models <= len(one.fleet.folders)]
            for one in present:
                await one.load(models)
                await one.call(texts, _WARM_CLIENTS, _WARM_S)
            for number in range(options.rounds):
                tell(f"round {number + 1} of {options.rounds}")
                for clients in options.clients:
                    order = present if number % 2 == 0 else present[::-1]
                    results.turns[number] |= await take_turns(order, models, clients, options, texts)


async def measure_limited(fleet: Fleet, root: Path, options: argparse.Namespace) -> Limited:
    """Load and call all models of a fleet; kill the server as soon as their memory (PSS) exceeds the limit."""
    peak, texts = 0.0, bodies(64)
    with running(fleet, root, options) as limited:

        async def watch() -> None:
            nonlocal peak
            while peak <= options.limit_mib:
                peak = max(peak, (await asyncio.to_thread(limited.memory))["pss"])
                await asyncio.sleep(_LOOK_S)
            limited.kill()

        async def work() -> None:
            await limited.load(len(fleet.folders))
            await limited.call(texts, _WARM_CLIENTS, options.seconds)

        watching = asyncio.create_task(watch())
        try:
            await work()
            survived = True
        except (OSError, EOFError) as error:
            tell(f"  {fleet.name}: the server was killed ({error!r})")
            survived = False
        watching.cancel()
        return Limited(len(limited.names), peak, survived)


async def run(options: argparse.Namespace) -> Results:
    """Write the fleets and measure them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fleets = write_fleets(root, options)
        results = Results((root / "weights" / "model.safetensors").stat().st_size / _MIB)
        texts = bodies(64)
        for number in range(options.load_rounds):
            tell(f"loads, round {number + 1} of {options.load_rounds}")
            order = list(fleets.values())[:: 1 if number % 2 == 0 else -1]
            results.loads.append({fleet.name: await measure_loads(fleet, root, options, texts) for fleet in order})
        if options.limit_mib:
            for name in (SHARED, PAST):
                if name in fleets:
                    tell(f"{name} within {options.limit_mib} MiB")
                    results.limit[name] = await measure_limited(fleets[name], root, options)
        if options.rounds:
            await measure_turns(list(fleets.values()), root, options, results)
    return results


def median(values: Sequence[float]) -> str:
    """Return a text with the median, the smallest and the largest of the rounds' values."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def report(results: Results, options: argparse.Namespace) -> None:
    """Print the measurements of all fleets as tables."""
    print(f"\n{'fleet':<18} {'models':>6}  {'PSS MiB':<24} {'private MiB':<24} {'first load s':<22} further load s")
    for fleet in options.fleets:
        rounds = [loads[fleet] for loads in results.loads if fleet in loads]
        for models in rounds[0].memory if rounds else ():
            pss, private = ([one.memory[models][kind] for one in rounds] for kind in ("pss", "private"))
            first = median([one.seconds[0] for one in rounds])
            further = [statistics.median(one.seconds[1:models]) for one in rounds if models > 1]
            print(
                f"{fleet:<18} {models:>6}  {median(pss):<24} {median(private):<24} {first:<22} "
                f"{median(further) if further else '-'}"
            )
    print(f"\n{'fleet':<18} {'models':>6} {'clients':>7}  {'items/s':<24} {'p50 ms':<22} {'p99 ms':<22} CPU ms an item")
    for name in dict.fromkeys(name for turns in results.turns for name in turns):
        turns = [one[name] for one in results.turns]
        fleet, models_text, clients = name.split(" | ")
        figures = [median([getattr(turn, figure) for turn in turns]) for figure in ("rate", "p50", "p99", "cpu_ms")]
        rate, p50, p99, cpu = figures
        print(f"{fleet:<18} {models_text:>6} {clients:>7}  {rate:<24} {p50:<22} {p99:<22} {cpu}")
    for fleet, limited in results.limit.items():
        outcome = "loaded and answered" if limited.survived else "loaded, then the limit was passed"
        peak = f"at most {limited.peak_mib:.0f} MiB"
        print(f"within {options.limit_mib} MiB, {fleet}: {limited.models} models {outcome}, {peak}")


def judge(results: Results, options: argparse.Namespace) -> int:
    """Print the verdict on each goal; return 1 if a bound that must be kept is missed in every round, otherwise 0."""
    if options.device == "cuda":
        print("\nThe goals are for two CPUs; there are none for a GPU yet.")
        return 0
    print(f"\nGoals against {PAST}, on two quiet cores: median of the rounds, and their interval")
    verdicts = shared_goals.verdicts(results, options.models, options.clients)
    for verdict in verdicts:
        print(verdict.line)
    return 1 if any(verdict.missed for verdict in verdicts) else 0


def numbers(text: str) -> list[int]:
    """Parse a list of numbers, such as 1,6,12."""
    return [int(part) for part in text.split(",")]


def fleet_names(text: str) -> list[str]:
    """Parse a list of fleets' names, such as shared,stock; argparse reports an unknown name as an error."""
    named = text.split(",")
    if unknown := [name for name in named if name not in FLEETS]:
        raise argparse.ArgumentTypeError(f"got {', '.join(unknown)}; allowed: {', '.join(FLEETS)}")
    return named


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="turns of each fleet at each case (default 5; 0: loads only)")
    add("--load-rounds", type=int, help="measurements of loads and memory (default: as many as rounds)")
    add("--models", type=numbers, default=[1, 6, 12], help="numbers of models (default 1,6,12)")
    add("--clients", type=numbers, default=[1, 16, 64], help="numbers of clients (default 1,16,64)")
    add("--seconds", type=float, default=6.0, help="length of a turn (default 6)")
    add("--fleets", type=fleet_names, default=FLEETS, help=f"a part of {','.join(FLEETS)!r}")
    add("--most-proxied", type=int, default=6, help=f"most models of the fleet {PROXIED!r} (default 6)")
    add("--limit-mib", type=int, default=LIMIT_MIB, help=f"memory limit of one more run (default {LIMIT_MIB}; 0: none)")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--engine", choices=["embedded", "djl"], default="embedded", help="the server (default embedded)")
    add("--djl-home", type=Path, help="the folder of DJL Serving, with --engine djl")
    add("--layers", type=int, default=6)
    add("--hidden", type=int, default=384, help="width of the models, a multiple of 32 (default 384)")
    add("--vocabulary", type=int, default=30_522, help="rows of embeddings (default 30522)")
    add("--quick", action="store_true", help="two rounds of 6 models and 16 clients, for a first look")
    add("--log", type=Path, default=Path(".cohost/bench-shared.log"), help="the servers' log")
    add("--output", type=Path, default=Path(".cohost/bench-shared.json"), help="all figures as JSON")
    return parser


def main() -> None:
    """Parse the command line and run."""
    options = command_line().parse_args()
    if options.quick:
        options.rounds, options.models, options.clients, options.limit_mib = 2, [1, 6], [16], 0
        options.seconds = min(options.seconds, 4.0)
    if options.load_rounds is None:
        options.load_rounds = options.rounds
    results = asyncio.run(run(options))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    report(results, options)
    sys.exit(judge(results, options))


if __name__ == "__main__":
    main()
