"""The replay of both sets of recordings of the real server, with sums; `make conformance` runs it.

The lines before the sums name every step that is not equal, with its reason. The exit code is not 0 when an answer is
neither as recorded nor as pinned, or when there are more deliberate differences than the goals allow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


class Summary:
    """Prints the tests' counts after all other output, and stores the missed goals."""

    def __init__(self) -> None:
        self.breaches: list[str] = []

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The list of differences, then the sums of each set."""
        # Importable only now: pytest has put their folder on the path.
        from lmi_scenarios import LEFT_OUT_FILES, not_equal
        from lmi_tally import TALLIES, too_many_kinds

        tallies = config.stash.get(TALLIES, {})
        for kind, title in (("deliberate", "different on purpose"), ("left_out", "not compared")):
            for file, reason, indices in not_equal(kind):  # type: ignore[arg-type]
                _say(f"{title}: {file} {', '.join(map(str, indices))}: {reason}")
        for file, reason in LEFT_OUT_FILES.items():
            _say(f"without an exchange: {file}: {reason}")
        self.breaches += too_many_kinds(list(tallies.values()))
        for title, tally in tallies.items():
            self.breaches += tally.breaches(title)
            for line in tally.lines(title):
                _say(line)
        for breach in self.breaches:
            _say(f"missed: {breach}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    summary = Summary()
    files = [str(HERE / name) for name in ("test_lmi_recordings.py", "test_lmi_lifecycle.py")]
    code = pytest.main([*files, "-q", "-m", "", "-p", "no:cacheprovider"], plugins=[summary])
    raise SystemExit(int(code) or int(bool(summary.breaches)))
