"""Compare the stock handler with the batching handler on one server: ratios of texts per second and of latencies.

`python benchmarks/handler.py` takes about five minutes on two cores, prints for each goal whether it is met, and exits
with 1 if one is missed. In each case, the handlers are measured one after the other, in several rounds, so that a busy
machine slows all of them. With `--device cuda`, all handlers run on the GPU. The stock handler is then a copy, since
the embedded server's own stock handler runs on the CPU only. On either device, the batching handler's floating point
operations per second at 512 tokens are compared with those of one large matrix multiplication. `--device simulated`
runs only the engine, on a simulated GPU, with separate goals (`handler_simulated.py`).

Like the lmi image, the embedded server limits Python to one thread. The stock handler keeps this limit; the batching
handler uses all cores for its passes. The lines "fp32-1-thread" show the batching handler with one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import handler_simulated
import torch
from handler_goals import ALONE, CASES, CROWD_OF_32, STOCK, Case, verdicts
from handler_load import Sample, counters, load, register
from handler_models import BERT, DEBERTA, LIMIT, STOCK_COPY, Shape, texts_of_mixed_lengths, write_model, write_weights

from cohost.handler.cohost_device import half_types
from local_aws.lmi.container import Container

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
GEMM_SIZE = {"cpu": 1024, "cuda": 8192}
GEMM_SECONDS = 1.0


def bodies_of(case: Case, texts: list[str]) -> list[bytes]:
    """Return the request bodies of a case, which are the same for every handler."""
    fixed = {} if case.mixed else {"padding": "max_length", "max_length": LIMIT}
    parameters = {"truncation": True} | fixed
    groups = [texts[start : start + case.items] for start in range(0, len(texts) - case.items, case.items)]
    return [
        json.dumps({"inputs": group if case.items > 1 else group[0], "parameters": parameters}).encode()
        for group in groups
    ]


async def measure(container: Container, name: str, case: Case, bodies: list[bytes], seconds: float) -> Sample:
    """Measure one handler once in a case; for the batching handler, also count its passes."""
    before = None if name == STOCK else await counters(container, name)
    sample = await load(
        container, name, bodies, items=case.items, clients=case.clients, seconds=seconds, calls=case.calls
    )
    if before is not None:
        after = await counters(container, name)
        sample.passes = after["passes"] - before["passes"]
        sample.sequences = after["sequences"] - before["sequences"]
    return sample


async def compare(
    container: Container, names: list[str], case: Case, texts: list[str], options: argparse.Namespace
) -> dict[str, Sample]:
    """Measure all handlers in a case, in rounds; with many clients in one round, as its ends have half-empty passes."""
    bodies = bodies_of(case, texts)
    samples = {name: Sample() for name in names}
    rounds = options.rounds if case.clients == ALONE else 1
    for _ in range(rounds):
        for name in names:
            samples[name].add(await measure(container, name, case, bodies, options.seconds / rounds))
    return samples


def report(case: Case, samples: dict[str, Sample]) -> None:
    """Print one line per handler: rate and latencies, and their ratios to those of the stock handler."""
    stock = samples[STOCK]
    for name, sample in samples.items():
        p50, p99 = sample.percentile(50), sample.percentile(99)
        line = f"{case.name:<18} {name:<14} {sample.rate:7.1f} items/s  p50 {p50:7.1f} ms  p99 {p99:8.1f} ms"
        if name != STOCK:
            ratios = (sample.rate / stock.rate, p50 / stock.percentile(50), p99 / stock.percentile(99))
            line += "  | items/s {:5.2f}x  p50 {:5.2f}x  p99 {:6.3f}x".format(*ratios)
            line += f"  | {sample.sequences_per_pass:4.1f} sequences a pass"
        print(line, flush=True)


def gemm_rate(device: str, dtype: torch.dtype) -> float:
    """Return the floating point operations per second of a large matrix product, a limit that no model exceeds."""
    size = GEMM_SIZE[device]
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + GEMM_SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        (left @ right).sum().item()  # `item` waits until the device has computed
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def handlers(root: Path, weights: Path, device: str) -> dict[str, Path]:
    """Write a model folder for each handler to compare, and return the folders by the handlers' names."""
    given = {"device": device, "max_queue_time_ms": 600_000}
    if device == "cpu":
        stock = write_model(root / "stock", weights, STOCK)
    else:
        stock = write_model(root / "stock", weights, STOCK_COPY, device=device)
    folders = {STOCK: stock, "fp32": write_model(root / "fp32", weights, "batched", **given)}
    if device == "cpu":
        folders["fp32-1-thread"] = write_model(root / "one", weights, "batched", threads=1, **given)
    for dtype in half_types(torch.device(device)):
        folders[dtype] = write_model(root / dtype, weights, "batched", dtype=dtype, **given)
        if device != "cpu":
            name = f"{dtype}-compiled"
            folders[name] = write_model(root / name, weights, "batched", dtype=dtype, compile="true", **given)
    return folders


def report_share(samples: dict[str, Sample], shape: Shape, device: str) -> None:
    """Print each batching handler's share of the rate of a large matrix product on the device."""
    for name, sample in samples.items():
        if (dtype := name.removesuffix("-compiled")) in TYPES:
            peak = gemm_rate(device, TYPES[dtype])
            reached = sample.rate * shape.flops(LIMIT)
            print(f"{name}: {reached / 1e12:.3f} of {peak / 1e12:.3f} TFLOP/s measured for GEMM, {reached / peak:.0%}")


async def run(options: argparse.Namespace) -> dict[Case, dict[str, Sample]]:
    """Start a server, load the handlers and run the cases."""
    shape = Shape(options.architecture, options.layers, options.hidden)
    texts = texts_of_mixed_lengths(1024)
    results: dict[Case, dict[str, Sample]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = handlers(root, write_weights(root / "weights", shape), options.device)
        (root / "store").mkdir()
        container = await Container.start(
            model_store=root / "store",
            multi_model=True,
            hub_roots=[root],
            log_file=options.log,
            # The server forks its workers, and a process that has initialised CUDA must not fork.
            environment={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        )
        try:
            for name, model in folders.items():
                await register(container, name, model)
            for case in CASES:
                results[case] = await compare(container, list(folders), case, texts, options)
                report(case, results[case])
        finally:
            await container.stop()
    report_share(results[Case(CROWD_OF_32, 1, mixed=False)], shape, options.device)
    return results


def judge(results: dict[Case, dict[str, Sample]]) -> int:
    """Print each goal's verdict, and return 1 if a goal is missed, else 0."""
    print("\nGoals, of two cores and six layers (figures are ratios to the stock handler's unless stated otherwise):")
    lines = verdicts(results)
    for _, line in lines:
        print(line)
    return 0 if all(met for met, _ in lines) else 1


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda", "simulated"], default="cpu")
    parser.add_argument(
        "--architecture", choices=[BERT, DEBERTA], default=BERT, help="the architecture of the model (default bert)"
    )
    parser.add_argument("--layers", type=int, help="the number of layers (default 6, on a GPU 12)")
    parser.add_argument("--hidden", type=int, help="the hidden size, a multiple of 32 (default 384, on a GPU 768)")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds per handler and case (default 6)")
    parser.add_argument(
        "--rounds", type=int, default=2, help="rounds into which --seconds are divided with one client (default 2)"
    )
    parser.add_argument("--log", type=Path, default=Path(".cohost/bench-handler.log"), help="the server's log")
    options = parser.parse_args()
    if options.device == "simulated":
        sys.exit(handler_simulated.run(options.seconds))
    on_gpu = options.device == "cuda"
    options.layers = options.layers or (12 if on_gpu else 6)
    options.hidden = options.hidden or (768 if on_gpu else 384)
    torch.set_num_threads(torch.get_num_threads())
    results = asyncio.run(run(options))
    # The goals are for a CPU; there are no goals for a GPU yet.
    sys.exit(0 if on_gpu else judge(results))


if __name__ == "__main__":
    main()
