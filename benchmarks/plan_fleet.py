"""Check that the time to plan a fleet grows as n log n, and compare its number of endpoints with the lower bound.

The program alternately packs 1,000 and 10,000 random models, each of a few percent to a third of a GPU. The output has
the median times, the ratio of both times per n log n (promised: 1.0), and the number of endpoints divided by the lower
bound. Run it as `python benchmarks/plan_fleet.py`.
"""

from __future__ import annotations

import math
import random
import statistics
import time

from cohost.forecast.fleet import Item, lower_bound, pack

SMALL, LARGE = 1_000, 10_000
RUNS = 5
CAPACITY = (20_000.0, 12_000.0, 0.9)


def make_items(count: int, seed: int) -> list[Item]:
    """Return random models: MiB of GPU and host memory, share of an endpoint's time; 1 in 10 has 2 replicas."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    return [
        Item(
            name=f"model{number}",
            sizes=(generator.uniform(600, 6_000), generator.uniform(300, 1_500), generator.uniform(0, 0.1)),
            replicas=2 if generator.random() < 0.1 else 1,  # noqa: PLR2004 - one in ten
        )
        for number in range(count)
    ]


def main() -> None:
    """Measure the planning of both fleets alternately, and print the results."""
    seconds: dict[int, list[float]] = {SMALL: [], LARGE: []}
    worst = 0.0
    pack(make_items(SMALL, 0), CAPACITY)
    for seed in range(RUNS):
        for size, taken in seconds.items():
            items = make_items(size, seed)
            start = time.perf_counter()
            bins = pack(items, CAPACITY)
            taken.append(time.perf_counter() - start)
            worst = max(worst, len(bins) / lower_bound(items, CAPACITY))
    scaled = {size: statistics.median(taken) / (size * math.log2(size)) for size, taken in seconds.items()}
    for size, taken in seconds.items():
        print(f"{size:>6} models: {statistics.median(taken):7.3f} s (median of {RUNS} runs)")
    print(f"ratio per n log n {LARGE}:{SMALL} = {scaled[LARGE] / scaled[SMALL]:.2f}")
    print(f"endpoints over the lower bound: {worst:.3f} at worst")


if __name__ == "__main__":
    main()
