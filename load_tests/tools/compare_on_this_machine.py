"""`make compare`: measure the project's three designs, one after another, on the local AWS emulator.

The program exports the small models to ONNX, deploys three stacks from one catalog with the real cdk command, runs the
short standard protocol against each stack, and writes a page that compares them. `make compare` tests every step from a
catalog to the page. The page's numbers hold for this machine only, and the page says so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.catalog_file import load_catalog
from cohost.designs.onnx.recipe import cpu_design
from load_tests.tools.machine import ROOT, TOKENIZERS, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from load_tests.tools.machine import Machine


CATALOG = ROOT / "model_configs" / "examples" / "offline-cpu-onnx.yaml"
OUT = Path(".cohost/compare")
DESIGNS = {
    "LmiCohostStack": "04 co-hosted on one GPU",
    "CpuOnnxStack": "02 CPU and ONNX",
    "InferenceComponentsStack": "03 one component a model",
}
"""The name of each stack's design in the comparison, by stack."""

EXIT_INVALID = 3
"""The exit code of `cohost bench` for an invalid run, such as one that the generator limited.

It does not end the comparison, since on one machine the generator shares its cores with the measured emulator.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit code of the first step that failed, or 0."""
    parser = argparse.ArgumentParser(prog="make compare", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for results and page (default: %(default)s)")
    parser.add_argument("--catalog", type=Path, default=CATALOG, help="a catalog with both designs")
    given = parser.parse_args(arguments)
    return run(given.catalog, lambda machine: _steps(machine, given.catalog, given.out))


def _steps(machine: Machine, catalog: Path, out: Path) -> Iterator[int]:
    # cdk runs in the project's folder, so a relative folder of the catalog is below the project's folder.
    archives = ROOT / cpu_design(load_catalog(catalog).catalog).archives
    yield machine.cohost("export-onnx", "--catalog", str(catalog), "--hub", str(TOKENIZERS), "--out", str(archives))
    yield machine.cdk("bootstrap")
    yield machine.cdk("deploy", *DESIGNS, "--require-approval", "never", "--concurrency", str(len(DESIGNS)))
    results = {stack: out / stack for stack in DESIGNS}
    for stack, label in DESIGNS.items():
        yield _bench(machine, stack, label, catalog, results[stack])
    yield machine.cohost("compare", *map(str, results.values()), "--out", str(out))


def _bench(machine: Machine, stack: str, label: str, catalog: Path, folder: Path) -> int:
    what = ("--stack", stack, "--label", label, "--catalog", str(catalog), "--out", str(folder))
    code = machine.cohost("bench", "--short", "--mixed-lengths", "--hub", str(TOKENIZERS), *what)
    return 0 if code == EXIT_INVALID else code


if __name__ == "__main__":
    sys.exit(main())
