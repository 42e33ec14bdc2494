"""Send 20,000 mixed requests to the batching handler in this process, and print the growth of its memory (RSS).

Before each reading, freed memory that the C library keeps is released to the operating system, as the handler does once
per minute. One cache fills slowly and is not a leak: oneDNN keeps a kernel for each of the last 1,024 shapes, some 20
MiB in all. With ONEDNN_PRIMITIVE_CACHE_CAPACITY=1, that cache holds one kernel only, so that other growth shows alone.

The requests have texts of mixed lengths, single or in lists, some invalid, with and without parameters; 32 run at a
time. The growth is the slope of a straight line through the second half of the readings, when caches are full. `python
benchmarks/handler_memory.py`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from typing import Any

import psutil
from handler_models import TOKENIZER, texts_of_mixed_lengths

from cohost.handler.cohost_memory import return_free_memory
from cohost.handler.cohost_service import Service
from local_aws.lmi.handler_api import Input, Output

CLIENTS = 32
POINTS = 40
MIB = 1024 * 1024
# The goal allows about 1 MiB over 20,000 requests; unfreed texts would take some hundred bytes per request.
MOST_KIB = 50.0
LIST_EVERY, BAD_EVERY, TOP_K_EVERY = 5, 11, 3


def body(number: int, texts: list[str]) -> dict[str, Any]:
    """Return the body of request number `number`."""
    text = texts[number % len(texts)] + f" {number}"
    if number % BAD_EVERY == 0:
        return {"inputs": number}
    inputs = [text, texts[-number % len(texts)]] if number % LIST_EVERY == 0 else text
    return {"inputs": inputs, "parameters": {"top_k": None} if number % TOP_K_EVERY == 0 else {}}


def request(value: dict[str, Any]) -> Input:
    """Return a body as the `Input` that DJL Serving passes to a handler."""
    inputs = Input()
    inputs.properties = {"Content-Type": "application/json"}
    inputs.content.add("data", json.dumps(value).encode())
    return inputs


async def run(requests: int) -> list[float]:
    """Send requests, and return the process's memory (RSS) in MiB, read at equal intervals of requests."""
    service = Service(Output)
    first = Input()
    given = {"model_id": str(TOKENIZER), "model_dir": "", "device_id": "-1", "threads": "1", "log_interval_s": "5"}
    first.properties = dict(given)
    await service.handle(first)
    # The tokenizer caches the last 10,000 different words, which is no leak, so the cache is filled before measuring.
    await service.handle(
        request({"inputs": [" ".join(map(str, range(start, start + 400))) for start in range(0, 12_000, 400)]})
    )
    texts = texts_of_mixed_lengths(2000)
    process = psutil.Process()
    numbers = iter(range(requests))
    rss: list[float] = []

    async def client() -> None:
        for number in numbers:
            await service.handle(request(body(number, texts)))
            if number % (requests // POINTS) == 0:
                return_free_memory()
                rss.append(process.memory_info().rss / MIB)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    service.close()
    return rss


def main() -> None:
    """Run the requests, print the memory's growth, and exit with 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    requests = parser.parse_args().requests
    rss = asyncio.run(run(requests))
    half = rss[len(rss) // 2 :]
    slope = statistics.linear_regression(range(len(half)), half).slope * POINTS / (requests / 1000)
    print(f"{requests} requests: RSS {rss[1]:.1f} MiB after the first, {half[0]:.1f} at half, {rss[-1]:.1f} at the end")
    met = 1024 * slope < MOST_KIB
    print(f"slope over the second half: {1024 * slope:+.1f} KiB per 1,000 requests")
    print(f"{'met   ' if met else 'MISSED'}  memory growth, under {MOST_KIB:g} KiB per 1,000 requests")
    sys.exit(not met)


if __name__ == "__main__":
    main()
