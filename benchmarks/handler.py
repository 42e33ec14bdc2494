"""The stock handler and the batching one, on the same server, in one run: items a second and latencies, as ratios.

`python benchmarks/handler.py` takes about six minutes on two cores. The handlers take turns on each case, so that a
busy machine slows both. With `--device cuda` both run on the GPU; the stock one then is a copy of it, as the embedded
server's own runs on the CPU. On either device the batching handler's rate at 512 tokens is set against what plain
matrix multiplication reaches there.

One thing is not equal on a CPU: like the image, the embedded server gives Python one thread, which the stock handler
keeps, and the batching handler takes all cores but one. On two cores that is one thread as well; the lines
"fp32-all-cores" show what another one brings, or costs on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from handler_load import Client, Sample, counters, load
from handler_models import LIMIT, Shape, texts_of_mixed_lengths, write_model, write_weights

from cohost.handler.cohost_device import half_types
from local_aws.lmi.process import Container

STOCK = "stock"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
GEMM_SIZE = {"cpu": 1024, "cuda": 8192}
GEMM_SECONDS = 1.0


@dataclass(frozen=True)
class Case:
    """So many clients send lists of so many texts, of 512 tokens each or of mixed lengths."""

    clients: int
    items: int
    mixed: bool

    @property
    def name(self) -> str:
        """As it stands in the table."""
        sent = f"list of {self.items}" if self.items > 1 else f"{self.clients} client{'s'[: self.clients - 1]}"
        return f"{'mixed' if self.mixed else '512  '} {sent}"

    def bodies(self, texts: list[str]) -> list[bytes]:
        """The requests, the same ones for every handler."""
        fixed = {} if self.mixed else {"padding": "max_length", "max_length": LIMIT}
        groups = [texts[start : start + self.items] for start in range(0, len(texts) - self.items, self.items)]
        return [
            json.dumps(
                {"inputs": group if self.items > 1 else group[0], "parameters": {"truncation": True} | fixed}
            ).encode()
            for group in groups
        ]


CASES = [Case(*size, mixed) for mixed in (False, True) for size in ((1, 1), (1, 8), (8, 1), (32, 1))]


async def register(url: str, name: str, folder: Path) -> None:
    """Loads a model."""
    client = Client(url)
    status, body = await client.post("/models", json.dumps({"model_name": name, "url": str(folder)}).encode())
    client.close()
    if status != 200:  # noqa: PLR2004 - OK
        raise RuntimeError(f"{name}: {body.decode()}")


async def measure(url: str, name: str, case: Case, bodies: list[bytes], seconds: float) -> Sample:
    """One handler's turn at a case, with the passes that it took where it counts them."""
    before = None if name == STOCK else await counters(url, name)
    sample = await load(url, name, bodies, items=case.items, clients=case.clients, seconds=seconds)
    if before is not None:
        after = await counters(url, name)
        sample.passes = after["passes"] - before["passes"]
        sample.sequences = after["sequences"] - before["sequences"]
    return sample


async def compare(
    url: str, names: list[str], case: Case, texts: list[str], options: argparse.Namespace
) -> dict[str, Sample]:
    """All handlers at a case, in turns."""
    bodies = case.bodies(texts)
    samples = {name: Sample() for name in names}
    for _ in range(options.rounds):
        for name in names:
            samples[name].add(await measure(url, name, case, bodies, options.seconds))
    return samples


def report(case: Case, samples: dict[str, Sample]) -> None:
    """A line a handler: its figures, and in ratio to the stock handler's."""
    stock = samples[STOCK]
    for name, sample in samples.items():
        p50, p99 = sample.percentile(50), sample.percentile(99)
        line = f"{case.name:<18} {name:<14} {sample.rate:7.1f} items/s  p50 {p50:7.1f} ms  p99 {p99:8.1f} ms"
        if name != STOCK:
            ratios = (sample.rate / stock.rate, p50 / stock.percentile(50), p99 / stock.percentile(99))
            line += "  | items/s {:5.2f}x  p50 {:5.2f}x  p99 {:6.3f}x".format(*ratios)
            line += f"  | {sample.sequences / max(1, sample.passes):4.1f} sequences a pass"
        print(line, flush=True)


def gemm_rate(device: str, dtype: torch.dtype) -> float:
    """Floating point operations a second of a large matrix product, at its best: the most that a model could reach."""
    size = GEMM_SIZE[device]
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + GEMM_SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        (left @ right).sum().item()  # waits for the device
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def handlers(root: Path, weights: Path, device: str) -> dict[str, Path]:
    """The handlers to compare, each a model's folder."""
    given = {"device": device, "max_queue_time_ms": 600_000}
    stock = write_model(root / "stock", weights, STOCK if device == "cpu" else "stock on GPU")
    folders = {STOCK: stock, "fp32": write_model(root / "fp32", weights, "batched", **given)}
    if device == "cpu":
        folders["fp32-all-cores"] = write_model(root / "all", weights, "batched", threads=os.cpu_count(), **given)
    for dtype in half_types(torch.device(device)):
        folders[dtype] = write_model(root / dtype, weights, "batched", dtype=dtype, **given)
    return folders


def report_share(samples: dict[str, Sample], shape: Shape, device: str) -> None:
    """What of the device's measured rate the batching handler reaches, at 512 tokens and 32 clients."""
    for name, sample in samples.items():
        if name in TYPES:
            peak = gemm_rate(device, TYPES[name])
            reached = sample.rate * shape.flops(LIMIT)
            print(f"{name}: {reached / 1e12:.3f} of {peak / 1e12:.3f} TFLOP/s measured for GEMM, {reached / peak:.0%}")


async def run(options: argparse.Namespace) -> None:
    """Starts a server, loads the handlers and goes through the cases."""
    shape = Shape(options.layers, options.hidden)
    texts = texts_of_mixed_lengths(1024)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = handlers(root, write_weights(root / "weights", shape), options.device)
        (root / "store").mkdir()
        container = await Container.start(
            model_store=root / "store",
            multi_model=True,
            hub_roots=[root],
            log_file=options.log,
            # As model.py sets it where it comes before torch: here workers are forked from a process that has torch.
            environment={"OMP_WAIT_POLICY": "PASSIVE"},
        )
        try:
            for name, model in folders.items():
                await register(container.url, name, model)
            for case in CASES:
                samples = await compare(container.url, list(folders), case, texts, options)
                report(case, samples)
                if case.clients == CASES[-1].clients and not case.mixed:
                    at_full_load = samples
        finally:
            await container.stop()
    report_share(at_full_load, shape, options.device)


def main() -> None:
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--layers", type=int, help="of the model (default 6, on a GPU 12)")
    parser.add_argument("--hidden", type=int, help="its width, a multiple of 32 (default 384, on a GPU 768)")
    parser.add_argument("--seconds", type=float, default=10.0, help="a handler's turn at a case (default 10)")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each handler at each case (default 1)")
    parser.add_argument("--log", type=Path, default=Path(".cohost/bench-handler.log"), help="the server's log")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.layers = options.layers or (12 if on_gpu else 6)
    options.hidden = options.hidden or (768 if on_gpu else 384)
    torch.set_num_threads(torch.get_num_threads())
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
