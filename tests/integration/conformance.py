"""Replays the recordings of the real server and sums up; run by `make conformance`.

The lines before the last one name every exchange that is not compared as equal, with its reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEAST_EQUAL = 0.95


class Summary:
    """Prints, after everything else, what the tests have counted."""

    def __init__(self) -> None:
        self.share = 0.0

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The list of differences, then the sums."""
        # Importable only now: pytest has put their folder on the path.
        from lmi_scenarios import LEFT_OUT_FILES, not_equal  # noqa: PLC0415
        from test_lmi_recordings import TALLY  # noqa: PLC0415

        counts = config.stash.get(TALLY, None)
        if counts is None:
            return
        for kind, title in (("deliberate", "different on purpose"), ("left_out", "left out")):
            for file, reason, indices in not_equal(kind):  # type: ignore[arg-type]
                _say(f"{title}: {file} {', '.join(map(str, indices))}: {reason}")
        for file, reason in LEFT_OUT_FILES.items():
            _say(f"without an exchange: {file}: {reason}")
        equal, replayed = counts["equal"], counts["replayed"]
        self.share = equal / replayed
        _say(f"left out: {counts['left out']} exchanges, named above")
        _say(f"conformance: {equal} of {replayed} equal, {counts['deliberate']} deliberate differences")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    summary = Summary()
    code = pytest.main([str(HERE / "test_lmi_recordings.py"), "-q", "-p", "no:cacheprovider"], plugins=[summary])
    raise SystemExit(int(code) or int(summary.share < LEAST_EQUAL))
