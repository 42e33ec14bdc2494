"""Try random examples in every test that uses Hypothesis, until the time is up.

`make fuzz` runs rounds of all these tests. Each round has a random seed, which is printed. All other make targets try
the same examples in each run. If an example fails, it is printed together with the command that tries it again. A slow
test does not fail: the profile `fuzz` of tests/conftest.py has no deadline.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
SEEDS: Final = 2**32


class Round:
    """A pytest plugin for one round: shuffles the test files by the seed, and skips all tests after `seconds`.

    Each round begins with another file, so that a short time limit does not always leave out the same tests. The
    seconds count from the first test, since on a loaded machine the imports alone may take as long as a short time
    limit.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self._seed, self._seconds = seed, seconds
        self._until = 0.0

    def pytest_collection_finish(self) -> None:
        """Start the round's clock when pytest has collected the tests."""
        self._until = time.monotonic() + self._seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Shuffle the files; the tests of a file stay together, because they share processes that the file starts."""
        files = sorted({item.path for item in items})
        random.Random(self._seed).shuffle(files)  # noqa: S311 - an order, not a secret
        items.sort(key=lambda item: files.index(item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test that would begin after the round's time is up."""
        if time.monotonic() > self._until:
            pytest.skip("the time is up")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds until the time is up or one fails; return its exit code, or 0. With a given seed, run one round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=300, help="seconds after which no further test starts (default: 300)"
    )
    parser.add_argument("--seed", type=int, help="repeat the one round with this seed")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"], help="files or folders of tests")
    given = parser.parse_args(arguments)
    files = with_examples(given.paths)
    until = time.monotonic() + given.seconds
    seeds: list[int] = []
    while not seeds or (given.seed is None and time.monotonic() < until):
        seeds.append(secrets.randbelow(SEEDS) if given.seed is None else given.seed)
        print(f"fuzz: seed {seeds[-1]}", flush=True)
        if code := _code_of_round(files, seeds[-1], until - time.monotonic()):
            print(f"fuzz: stopped at seed {seeds[-1]}; to try it again: make fuzz FUZZ_SEED={seeds[-1]}")
            return code
    print(f"fuzz: nothing found in {given.seconds:g} s with the seeds {', '.join(map(str, seeds))}")
    return 0


def with_examples(paths: Sequence[Path]) -> list[str]:
    """Return the test files that import Hypothesis; collecting all test files would take longer than a short run."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]
    return [str(file) for file in files if "from hypothesis import" in file.read_text(encoding="utf-8")]


def _code_of_round(files: Sequence[str], seed: int, seconds: float) -> int:
    # Each round has a process, so that it does not share state with an earlier round.
    child = multiprocessing.get_context("spawn").Process(target=_round, args=(files, seed, seconds))
    child.start()
    child.join()
    return child.exitcode or 0


def _round(files: Sequence[str], seed: int, seconds: float) -> None:
    options = ["-q", "-m", "hypothesis", "--hypothesis-profile", "fuzz", f"--hypothesis-seed={seed}"]
    sys.exit(pytest.main([*options, *files], plugins=[Round(seed, seconds)]))


if __name__ == "__main__":
    sys.exit(main())
