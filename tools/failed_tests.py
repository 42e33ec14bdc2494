"""Run failed tests again, one after another, with all tests of their files, since a test may need those before it.

`make test-failed` runs the tests that failed in the last run in this folder. With arguments for pytest, as in
`.ci/run`, this script runs pytest first. On a loaded machine, a test may fail by chance, but a test with a real fault
fails again in the second run. The exit status is 0 only if the first run came to its end, and each test that failed in
it passed in the second run.

The script writes the name of each failed test, and its outcome in the second run, into the file that the environment
variable TRIED_AGAIN names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).parent.parent
LAST_RUN: Final = ROOT / ".pytest_cache"
ONE_AFTER_ANOTHER: Final = ("--numprocesses", "0", "--dist", "no")


def main(arguments: Sequence[str]) -> int:
    """With arguments, run pytest with them, then the failed tests again; without, the failed tests of the last run."""
    if arguments:
        return run_twice(arguments)
    if not failed_in(LAST_RUN):
        print("no test failed in the last run here")
        return 0
    # The failed test may be one that only a separate make target runs.
    return run_again(["-m", ""], LAST_RUN)


def run_twice(arguments: Sequence[str]) -> int:
    """Run pytest with a separate cache folder, then run the failed tests again; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        code = _pytest(arguments, Path(folder))
        # Another exit code means that not all tests were run, which a second run of some tests would hide.
        if code != pytest.ExitCode.TESTS_FAILED:
            return code
        return run_again([word for word in arguments if not _is_path(word)], Path(folder))


def run_again(options: Sequence[str], cache: Path) -> int:
    """Run the files of the failed tests in pytest's cache; return 0 only if each of these tests passed."""
    names = failed_in(cache)
    files = sorted({name.partition("::")[0] for name in names})
    print(f"running {len(files)} files again for their failed tests", flush=True)
    code = _pytest([*options, *ONE_AFTER_ANOTHER, *files], cache)
    # Only a test that passes is removed from the cache, so a test that was not selected this time is still in it.
    left = failed_in(cache)
    _note(f"{name}: {'failed again' if name in left else 'passed the second time'}" for name in names)
    if code == pytest.ExitCode.OK and (missing := left & names):
        print(f"error: failed, and not run again: {', '.join(sorted(missing))}")
        return 1
    return code


def failed_in(cache: Path) -> set[str]:
    """Return the names of the failed tests in a pytest cache folder, except tests whose files no longer exist."""
    file = cache / "v" / "cache" / "lastfailed"
    names = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {name for name in names if (ROOT / name.partition("::")[0]).exists()}


def _is_path(word: str) -> bool:
    return bool(word) and (ROOT / word.partition("::")[0]).exists()


def _pytest(arguments: Sequence[str], cache: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own tests


def _note(lines: Iterable[str]) -> None:
    if log := os.environ.get("TRIED_AGAIN"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in sorted(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
