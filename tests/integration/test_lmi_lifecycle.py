"""The container against recorded sequences of DJL Serving 0.36.0, whose workers die, hang and are unloaded.

Every step that can be compared is equal or a deliberate difference with what happens instead (lmi_scenarios).
`make conformance` prints the sums.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from lmi_lifecycle import LIFECYCLE, LifecycleFixture, Replay, Sequence, sequences

if TYPE_CHECKING:
    from pathlib import Path

Found = dict[int, list[str]]

# All sequences are replayed before the first test; that takes more than a minute, and many on a loaded machine.
pytestmark = pytest.mark.timeout(900)

TRIES = 3
AT_ONCE = 12  # they wait most of the time
FILES = sorted(file.name for file in LIFECYCLE.glob("[0-9]*.json") if file.name != "00_index.json")
SEQUENCES = [sequence for file in FILES for sequence in sequences(file)]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Found | Exception]:
    """What every sequence came to, or what kept it from being replayed."""
    fixture = LifecycleFixture(tmp_path_factory.mktemp("lifecycle"))
    return asyncio.run(_replay_all(fixture, tmp_path_factory.mktemp("logs")))


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: f"{sequence.file[:2]} {sequence.title}")
def test_what_happens_equals_what_was_recorded(
    sequence: Sequence, replayed: dict[tuple[str, str], Found | Exception]
) -> None:
    """Answers, pings, states, numbers of processes and exit codes are the recorded ones, in the recorded order."""
    found = replayed[sequence.file, sequence.title]
    if isinstance(found, Exception):
        raise found
    assert {index: texts for index, texts in found.items() if texts} == {}


async def _replay_all(fixture: LifecycleFixture, logs: Path) -> dict[tuple[str, str], Found | Exception]:
    """Replay the sequences side by side, each up to three times, the later ones on a slower clock."""
    found: dict[tuple[str, str], Found | Exception] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(sequence: Sequence) -> None:
        async with places:
            for attempt in range(TRIES):
                speed = max(1.0, sequence.speed / 2**attempt)
                log_file = logs / f"{sequence.file[:2]}-{min(sequence.steps)}-{attempt}.log"
                try:
                    result: Found | Exception = await Replay(sequence, fixture, log_file, speed).run()
                except Exception as error:  # noqa: BLE001 - its test raises it
                    result = error
                found[sequence.file, sequence.title] = result
                if not isinstance(result, Exception) and not any(result.values()):
                    return

    await asyncio.gather(*map(one, SEQUENCES))
    return found
