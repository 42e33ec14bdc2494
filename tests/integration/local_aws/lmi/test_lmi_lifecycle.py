"""The container against recorded sequences of DJL Serving 0.36.0, whose workers die, hang and are unloaded.

Every step that can be compared is as recorded, or a deliberate difference with what happens instead (lmi_scenarios).
`make conformance` replays all sequences and prints the sums, `make test` the shortest one of each recording.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from lmi_lifecycle import Replay
from lmi_scenarios import LIFECYCLE_DELIBERATE, LIFECYCLE_LEFT_OUT
from lmi_sequences import LIFECYCLE, LifecycleFixture, Sequence, sequences
from lmi_tally import TALLIES, Outcome, Tally, cases, named, selected, unlisted

from local_aws.lmi.container import Container

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Found = tuple[Outcome, Outcome]

# All sequences are replayed before the first test; that takes more than a minute, and many on a loaded machine.
pytestmark = pytest.mark.timeout(900)

TRIES = 3
AT_ONCE = 16  # they wait most of the time
STARTS_AT_ONCE = 2  # each takes a core
MOST_DELIBERATE = 0.03
FILES = sorted(file.name for file in LIFECYCLE.glob("[0-9]*.json") if file.name != "00_index.json")
SAYS_WHETHER_TORCH_IS_THERE = """
import sys
from djl_python import Output

def handle(inputs):
    return None if inputs.is_empty() else Output().add(str("torch" in sys.modules))
"""
SEQUENCES = [sequence for file in FILES for sequence in sequences(file)]
FEW = [min(sequences(file), key=lambda sequence: sequence.takes_s) for file in FILES]


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config, tried_again: list[str]) -> Iterator[Tally]:
    """Return the counts over all sequences."""
    tally = pytestconfig.stash.setdefault(TALLIES, {}).setdefault("lifecycle recordings", Tally(MOST_DELIBERATE))
    yield tally
    tried_again += tally.again


@pytest.fixture(scope="module")
def replayed(
    tally: Tally, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[tuple[str, str], Found | Exception]:
    """Return the outcome of every selected sequence, or the error of its replay."""
    fixture = LifecycleFixture(tmp_path_factory.mktemp("lifecycle"))
    return asyncio.run(_replay_all(selected(request, "sequence"), fixture, tmp_path_factory.mktemp("logs"), tally))


@pytest.mark.parametrize("sequence", cases(SEQUENCES, FEW, lambda sequence: f"{sequence.file[:2]} {sequence.title}"))
def test_what_happens_equals_what_was_recorded(
    sequence: Sequence, replayed: dict[tuple[str, str], Found | Exception], tally: Tally
) -> None:
    """Answers, pings, states, processes and exit codes equal the recorded ones, in the recorded order."""
    found = replayed[sequence.file, sequence.title]
    if isinstance(found, Exception):
        raise found
    left_out = LIFECYCLE_LEFT_OUT.get(sequence.file, {}).keys() & sequence.steps
    tally.left_out += len(left_out & set(sequence.exchanges))
    outcome = {index: texts for index, texts in found[0].items() if index not in left_out}
    statuses = {index: sequence.steps[index]["response"]["status"] for index in sequence.exchanges}
    deliberate = sequence.of(LIFECYCLE_DELIBERATE)
    tally.add(sequence.title, outcome, deliberate, statuses)
    assert outcome.keys() | left_out >= set(sequence.exchanges), "an answer was not compared"
    assert unlisted(outcome, found[1], deliberate) == {}


def test_a_container_may_import_nothing_ahead(tmp_path: Path) -> None:
    """With COHOST_LMI_PRELOAD=false a worker starts without torch."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "serving.properties").write_text("engine=Python\ncpu.minWorkers=1\ncpu.maxWorkers=1\n")
    (model / "model.py").write_text(SAYS_WHETHER_TORCH_IS_THERE)

    async def scenario() -> str:
        container = await Container.start(
            model_store=tmp_path / "none",
            multi_model=True,
            hub_roots=[],
            log_file=tmp_path / "container.log",
            environment={"COHOST_LMI_PRELOAD": "false"},
        )
        headers = getattr(container, "headers", {})
        async with httpx.AsyncClient(base_url=container.url, headers=headers, timeout=60, trust_env=False) as client:
            try:
                (await client.post("/models", json={"model_name": "m", "url": str(model)})).raise_for_status()
                return (await client.post("/models/m/invoke", json={})).text
            finally:
                await container.stop()

    assert asyncio.run(scenario()) == "False"


async def _replay_all(
    selection: Iterable[Sequence], fixture: LifecycleFixture, logs: Path, tally: Tally
) -> dict[tuple[str, str], Found | Exception]:
    """Replay the sequences in parallel, each up to three times, later ones with a slower clock."""
    found: dict[tuple[str, str], Found | Exception] = {}
    places, starts = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(STARTS_AT_ONCE)

    async def one(sequence: Sequence) -> None:
        async with places:
            for attempt in range(TRIES):
                log_file = logs / f"{sequence.number}-{attempt}.log"
                result = await _replayed(sequence, fixture, log_file, slower=2**attempt, starts=starts)
                found[sequence.file, sequence.title] = result
                if not (wrong := _wrong(sequence, result)):
                    return
                if attempt + 1 < TRIES:
                    tally.again.append(named(sequence.number, wrong))

    # The longest first, so that none is left to run alone at the end.
    await asyncio.gather(*map(one, sorted(selection, key=lambda sequence: -sequence.takes_s)))
    return found


async def _replayed(
    sequence: Sequence, fixture: LifecycleFixture, log_file: Path, *, slower: int, starts: asyncio.Semaphore
) -> Found | Exception:
    """Return the outcome of a sequence, or its exception for its own test."""
    deliberate = sequence.of(LIFECYCLE_DELIBERATE)
    replay = Replay(sequence, fixture, log_file, slower=slower, deliberate=deliberate, starts=starts)
    try:
        return await replay.run()
    except Exception as error:  # noqa: BLE001 - its test raises it
        return error


def _wrong(sequence: Sequence, found: Found | Exception) -> Outcome | Exception:
    """List the unexpected differences."""
    if isinstance(found, Exception):
        return found
    left_out = LIFECYCLE_LEFT_OUT.get(sequence.file, {})
    outcome = {index: texts for index, texts in found[0].items() if index not in left_out}
    return unlisted(outcome, found[1], sequence.of(LIFECYCLE_DELIBERATE))
