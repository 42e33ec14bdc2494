"""Measure how bundling grows with the catalog: the time per entry for 1,000 entries, divided by that for 100.

Each run reads and checks a catalog file, renders every entry and writes its archive, all in this process. Runs of both
sizes alternate, and the medians are compared. A ratio of 1.0 means linear growth. Run it as `python
benchmarks/bundle.py`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from cohost.archives.archive import pack, write_archive
from cohost.catalog.serving import files_of
from cohost.catalog_file import load_catalog
from cohost.hardware.images import parse_image

SMALL, LARGE = 100, 1000
RUNS = 5

HEAD = """\
endpoint:
  name: lmi-cohost
  instance_type: ml.g5.xlarge
  image: djl-inference:0.36.0-lmi26.0.0-cu130
models:
"""
ENTRY = """\
  model{number}:
    model_id: org/model{number}
    revision: "{number:040x}"
    task: text-classification
    required_memory_mb: 2048
    gpu: {{minWorkers: 1, maxWorkers: 2}}
    properties: {{option.predict_timeout: "120"}}
"""


def write_catalog(path: Path, entries: int) -> Path:
    """Write a catalog with `entries` different models."""
    path.write_text(HEAD + "".join(ENTRY.format(number=number) for number in range(entries)), encoding="utf-8")
    return path


def bundle(catalog_file: Path, out: Path) -> float:
    """Check, render and bundle a catalog, and return the seconds that this takes."""
    start = time.perf_counter()
    catalog = load_catalog(catalog_file).catalog
    image = parse_image(catalog.endpoint.image)
    for name, entry in catalog.models.items():
        write_archive(out / f"{name}.tar.gz", pack(files_of(entry, image)))
    return time.perf_counter() - start


def main() -> None:
    """Measure catalogs of both sizes, alternately, and print the times and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        catalogs = {size: write_catalog(root / f"{size}.yaml", size) for size in (SMALL, LARGE)}
        bundle(catalogs[SMALL], root / "warm")
        seconds: dict[int, list[float]] = {size: [] for size in catalogs}
        for run in range(RUNS):
            for size, catalog_file in catalogs.items():
                seconds[size].append(bundle(catalog_file, root / f"{size}-{run}"))
    per_entry = {size: statistics.median(runs) / size for size, runs in seconds.items()}
    for size, one in per_entry.items():
        print(f"{size:>5} entries: {one * size:7.3f} s, {one * 1000:6.3f} ms per entry (median of {RUNS} runs)")
    print(f"ratio per entry {LARGE}:{SMALL} = {per_entry[LARGE] / per_entry[SMALL]:.2f}")


if __name__ == "__main__":
    main()
