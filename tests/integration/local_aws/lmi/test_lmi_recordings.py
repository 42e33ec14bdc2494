"""The container against the recorded exchanges of the real server, DJL Serving 0.36.0.

Every exchange is accounted for: equal, a deliberate difference with what is answered instead, or left out with its
reason. An unlisted difference fails, and so does a listed one that is none, or another. `make conformance` replays all
recordings and sums up, `make test` a few.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fakes.refusals import refused
from lmi_compare import differences, off_pin
from lmi_replay import VECTORS, Fixture, groups, load, replay
from lmi_scenarios import FEW, LEFT_OUT_FILES, SCENARIOS, Lane, Scenario, table
from lmi_tally import TALLIES, Outcome, Tally, cases, named, selected, unlisted

from local_aws.lmi.container import Container, ContainerError
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from lmi_replay import Answer, Exchange

Found = tuple[Outcome, Outcome]  # how answers differ from what was recorded, and from what is pinned instead

# All recordings are replayed before the first test; that takes a minute, and many on a loaded machine.
pytestmark = pytest.mark.timeout(900)

TRIES = 3
MOST_DELIBERATE = 0.02


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """Return one event loop for all tests of this file, because a container belongs to the loop that started it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    """The files that the recordings name."""
    return Fixture(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def replayed(
    runner: asyncio.Runner,
    recorded: Fixture,
    tally: Tally,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, Found | Exception]:
    """Return the outcome of every selected recording, or the exception of its replay."""
    files = selected(request, "file")
    return runner.run(_replay_all(files, recorded, tmp_path_factory.mktemp("logs"), tally))


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config, tried_again: list[str]) -> Iterator[Tally]:
    """Return the counts over all recordings."""
    tally = pytestconfig.stash.setdefault(TALLIES, {}).setdefault("plain recordings", Tally(MOST_DELIBERATE))
    yield tally
    tried_again += tally.again


@pytest.mark.parametrize("file", cases(SCENARIOS, FEW, str))
def test_answers_equal_the_recorded_ones(
    file: str, replayed: dict[str, Found | Exception], recorded: Fixture, tally: Tally
) -> None:
    """Status, reason, headers, JSON text and scores (to 1e-4) equal the recorded or pinned ones."""
    scenario, found = SCENARIOS[file], replayed[file]
    if isinstance(found, Exception):
        raise found
    statuses = {exchange.index: exchange.response["status"] for exchange in load(file, recorded)}
    tally.add(file, found[0], scenario.deliberate, statuses)
    tally.left_out += len(scenario.left_out)
    assert unlisted(*found, scenario.deliberate) == {}


def test_every_recording_is_accounted_for() -> None:
    """Each recording is replayed, or left out by name with a reason."""
    files = {file.name for file in VECTORS.glob("[0-9]*.json")} - {"00_index.json"}
    assert files == SCENARIOS.keys() | LEFT_OUT_FILES.keys()
    assert SCENARIOS.keys() >= set(FEW)


def test_the_documentation_lists_every_difference() -> None:
    """docs/emulation.md lists exactly the exchanges that differ or are left out, with their reasons."""
    text = (Path(__file__).parents[4] / "docs" / "emulation.md").read_text()
    rows = [line for line in text.splitlines() if line[:4].strip("| ").isdigit() or line[2:5] == "02v"]
    assert rows == table("deliberate") + table("left_out")
    for file, reason in LEFT_OUT_FILES.items():
        assert f"`{file.removesuffix('.json')}` {reason.partition(';')[0]}" in text


def test_a_failing_model_of_the_store_ends_the_container(
    runner: asyncio.Runner, recorded: Fixture, tmp_path: Path
) -> None:
    """A container whose store has one failing model ends with exit code 1 (recorded: 15)."""
    store = recorded.store("failing", {"f": "initfail", "ok": "code1"})
    with refused("container-ended", kind=ContainerError):
        runner.run(_start(store, tmp_path / "container.log"))


def test_a_plain_file_makes_the_store_the_model(runner: asyncio.Runner, recorded: Fixture, tmp_path: Path) -> None:
    """A README beside a model folder makes the store itself the model, which cannot be loaded (recorded: 17)."""
    store = recorded.store("mixed", {"m": "code1"})
    (store / "README").touch()
    with refused("container-ended", kind=ContainerError):
        runner.run(_start(store, tmp_path / "container.log"))


async def _replay_all(
    files: Sequence[str], recorded: Fixture, logs: Path, tally: Tally
) -> dict[str, Found | Exception]:
    """Replay the groups of recordings in parallel, because most of the time is waiting."""
    found: dict[str, Found | Exception] = {}

    async def shared(lane: Lane) -> None:
        if not _of_lane(lane, files):
            return
        async with _running(recorded.store(lane, {}), logs / f"{lane}.log") as container:
            for file, scenario in _of_lane(lane, files):
                replay = functools.partial(_caught, file, scenario, container, recorded, None)
                found[file] = await _tried(file, scenario, tally, lambda _, replay=replay: replay())

    waiting = _of_lane("stores", files)

    async def own() -> None:
        while waiting:
            file, scenario = waiting.pop()
            replay = functools.partial(_replay_on_own_store, file, scenario, recorded, logs / f"{file}.log")
            found[file] = await _tried(file, scenario, tally, replay)

    # Two at a time: each start takes seconds of one core.
    await asyncio.gather(shared("idle"), shared("busy"), own(), own())
    return found


async def _tried(
    file: str, scenario: Scenario, tally: Tally, replay: Callable[[int], Awaitable[Found | Exception]]
) -> Found | Exception:
    """Replay a recording that depends on time up to three times, because other programs use the machine too."""
    for attempt in range(TRIES):
        found = await replay(attempt)
        wrong = found if isinstance(found, Exception) else unlisted(*found, scenario.deliberate)
        if not wrong:
            break
        if attempt + 1 < TRIES:
            tally.again.append(named(file, wrong))
    return found


def _of_lane(lane: Lane, files: Sequence[str]) -> list[tuple[str, Scenario]]:
    return [(file, SCENARIOS[file]) for file in files if SCENARIOS[file].lane == lane]


@contextlib.asynccontextmanager
async def _running(store: Path, log_file: Path, environment: dict[str, str] | None = None) -> AsyncIterator[Container]:
    container = await _start(store, log_file, environment)
    try:
        yield container
    finally:
        await container.stop()


async def _start(store: Path, log_file: Path, environment: dict[str, str] | None = None) -> Container:
    return await Container.start(
        model_store=store,
        multi_model=True,
        hub_roots=default_roots(),
        log_file=log_file,
        environment=environment,
        start_timeout_s=180,
    )


async def _replay_on_own_store(
    file: str, scenario: Scenario, recorded: Fixture, log_file: Path, attempt: int
) -> Found | Exception:
    root = recorded.store(f"{file.partition('_')[0]}-{attempt}", scenario.store or {})
    first = next(iter(scenario.store or {}), "").partition("/")[0]
    store = root if scenario.store_is_placeholder else root / first
    environment = {"COHOST_LMI_SPEED": str(scenario.speed)}
    if scenario.at_once:
        environment["SERVING_WAIT_MODEL_LOADING"] = "false"
    try:
        async with _running(store, log_file, environment) as container:
            return await _caught(file, scenario, container, recorded, root)
    except ContainerError as error:
        return error


async def _caught(
    file: str, scenario: Scenario, container: Container, recorded: Fixture, root: Path | None
) -> Found | Exception:
    """Return the outcome of a recording, or its exception for its own test."""
    try:
        return await _replay_file(file, scenario, container, recorded, root)
    except Exception as error:  # noqa: BLE001 - its test raises it
        return error


async def _replay_file(
    file: str, scenario: Scenario, container: Container, recorded: Fixture, root: Path | None
) -> Found:
    found: Outcome = {}
    pins: Outcome = {}
    headers = getattr(container, "headers", {})
    async with httpx.AsyncClient(base_url=container.url, timeout=60, trust_env=False, headers=headers) as client:
        if scenario.store is None:
            await _delete(client, ("*",))
        for model in scenario.loaded:
            answer = await client.post("/models", json={"model_name": model, "url": str(recorded.models / model)})
            answer.raise_for_status()
        for group in groups(load(file, recorded, root)):
            await _prepare(client, scenario, group[0])
            sent = [exchange.with_headers(headers) for exchange in group]
            answers = await replay(int(container.url.rpartition(":")[2]), sent)
            found |= {exchange.index: differences(exchange, answers[exchange.index]) for exchange in group}
            pins |= {index: _off_pin(scenario, index, answers[index]) for index in answers.keys() & scenario.deliberate}
    return {index: texts for index, texts in found.items() if index not in scenario.left_out}, pins


def _off_pin(scenario: Scenario, index: int, answer: Answer) -> list[str]:
    return off_pin(scenario.deliberate[index], answer.status, answer.body.decode("utf-8", "replace"))


async def _prepare(client: httpx.AsyncClient, scenario: Scenario, exchange: Exchange) -> None:
    await _delete(client, scenario.deleted.get(exchange.index, ()))
    if exchange.index in scenario.scaled:
        await client.put(scenario.scaled[exchange.index])
    await asyncio.sleep(scenario.waits.get(exchange.index, 0) / scenario.speed)


async def _delete(client: httpx.AsyncClient, names: tuple[str, ...]) -> None:
    if names == ("*",):
        names = tuple(model["modelName"] for model in (await client.get("/models")).json()["models"])
    for name in names:
        await client.delete(f"/models/{name}")
