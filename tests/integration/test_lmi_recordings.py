"""The container against the recorded exchanges of the real server, DJL Serving 0.36.0.

Every exchange is accounted for: equal, a deliberate difference with its reason, or left out with its reason. An
unlisted difference fails, and so does a listed one that is none.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import pytest
from lmi_replay import VECTORS, Fixture, differences, groups, load, replay

from local_aws.hub import default_roots
from local_aws.lmi import Container, ContainerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmi_replay import Exchange

BUG = "the real server answers 500 with an exception of its own; here the caller is told what is missing"
RACE = "the real server answers before it has removed the failed model; a little later it says 404 as well"
REPLACED = "the real server gives a model up when a worker dies or is too slow; here the worker is replaced at once"
OLD = "transformers 4.57.6 answers this otherwise than 5.9.0, which is installed (see 02v_tf590)"
NO_CACHE = "answers are not kept to be fetched later (x-synchronous)"
HTTP_CLOSE = "a client that asks to close is told that the connection closes"
NO_WEIGHTS = "the weights with one label were not kept"
NO_OPTION = "wait_model_loading=false is not offered"
CLEAR = "the message says what is wrong instead of where to look"

LEFT_OUT_FILES = {
    "10_recovery_after_worker_death.json": "waits 80 s, and for workers that here are replaced at once",
    "15_startup_failing_model.json": "holds no exchange; see test_a_failing_model_of_the_store_ends_the_container",
    "16_startup_failing_nowait.json": NO_OPTION,
    "17_startup_mixed_store.json": "holds no exchange; see test_a_plain_file_makes_the_store_the_model",
    "21_handler_properties.json": "holds no exchange; see test_lmi_handlers",
}


@dataclass(frozen=True)
class Scenario:
    """What a recording needs.

    `store` are the models of the store at start-up (None: a container shared with others, empty at first), `loaded`
    those loaded before the first exchange. Before an exchange, by its index, the recorder deleted models (`deleted`,
    "*" for all), scaled one (`scaled`, the path of the PUT) and waited (`waits`, in seconds). `deliberate` and
    `left_out` give reasons by index.
    """

    store: dict[str, str] | None = None
    store_is_placeholder: bool = False
    loaded: tuple[str, ...] = ()
    deleted: dict[int, tuple[str, ...]] = field(default_factory=dict)
    scaled: dict[int, str] = field(default_factory=dict)
    waits: dict[int, float] = field(default_factory=dict)
    deliberate: dict[int, str] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


def _before_loads(file: str) -> dict[int, tuple[str, ...]]:
    """In recordings of load variants each model was deleted before the next one."""
    vectors = json.loads((VECTORS / file).read_text())["vectors"]
    return {i: ("*",) for i, vector in enumerate(vectors) if vector["name"].startswith(("load", "final ping"))}


SCENARIOS = {
    "01_management_mme.json": Scenario(
        deleted={71: ("tarm", "tarb", "xlmr", "xq", "xa")},
        waits={45: 0.05, 48: 2.0, 50: 0.1},
        deliberate=dict.fromkeys((33, 34, 35, 36, 37, 38, 54), BUG) | {48: "the real server leaks a second worker"},
    ),
    "02_inference_text_classification.json": Scenario(
        loaded=("minilm", "deberta"),
        scaled={85: "/models/minilm?min_worker=1&max_worker=2"},
        deliberate={79: NO_CACHE},
        left_out=dict.fromkeys((16, 24, 36, 38, 40, 42, 58, 63, 64, 68), OLD),
    ),
    "02v_tf590.json": Scenario(loaded=("minilm", "deberta"), deliberate={79: NO_CACHE}),
    "03_invocations_routing.json": Scenario(loaded=("minilm", "deberta")),
    "04_other_tasks.json": Scenario(left_out={18: RACE} | dict.fromkeys((20, 21, 22), NO_WEIGHTS)),
    "05_load_variants.json": Scenario(
        deleted=_before_loads("05_load_variants.json"), deliberate={24: CLEAR, 36: CLEAR}, left_out={37: RACE}
    ),
    "06_queue_overflow_and_timeouts.json": Scenario(
        deleted={13: ("slow",), 27: ("*",), 35: ("*",)},
        waits={22: 2.0, 32: 2.0, 39: 2.0},
        deliberate=dict.fromkeys((18, 19, 20, 22, 23, 24, 30, 32, 33, 34, 39), REPLACED),
    ),
    "07_load_failures_custom.json": Scenario(waits={9: 1.0, 16: 0.2}),
    "08_dynamic_batching_custom_handler.json": Scenario(),
    "09_worker_scaling.json": Scenario(deleted={19: ("*",)}, waits={15: 5.5, 34: 5.5}),
    "11_startup_single_model_dir.json": Scenario(store={"single/m": "minilm"}),
    "12_startup_two_models.json": Scenario(store={"two/a": "minilm", "two/b": "minilm"}),
    "13_startup_root_is_model.json": Scenario(store={"rootmodel": "bundled"}),
    "14_startup_targz_in_store.json": Scenario(store={"tarstore": ""}),
    "18_dynamic_batching_default_handler.json": Scenario(
        deliberate={35: "the real server mixes query parameters into a batch and loses an answer"},
        left_out=dict.fromkeys((25, 26, 27), OLD),
    ),
    "19_custom_codes_and_http_edges.json": Scenario(deliberate={17: HTTP_CLOSE, 20: HTTP_CLOSE}),
    "20_queue_order.json": Scenario(),
    "22_more_load_variants.json": Scenario(
        deleted=_before_loads("22_more_load_variants.json"),
        deliberate={
            11: "low_cpu_mem_usage loads another kind of model there, which then fails",
            38: CLEAR,
            41: "streaming is for models that generate; an encoder answers as usual",
        },
        left_out={7: RACE, 35: RACE},
    ),
    "23_cohost_custom_attributes.json": Scenario(
        store={"mdeberta": "async_prototype@deberta", "minilm": "async_prototype"}, store_is_placeholder=True
    ),
}


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests here, since a container belongs to the loop that started it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    """The files that the recordings name."""
    return Fixture(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def shared(runner: asyncio.Runner, recorded: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container in multi-model mode with an empty store."""
    container = runner.run(_start(recorded.store("empty", {}), tmp_path_factory.mktemp("log") / "container.log"))
    yield container
    runner.run(container.stop())


@pytest.fixture(scope="module")
def tally() -> Iterator[dict[str, int]]:
    """Counts over all recordings; printed at the end."""
    counts = {"equal": 0, "replayed": 0, "deliberate": 0, "left_out": 0}
    yield counts
    print(  # noqa: T201 - the line that the run is for
        f"\nconformance: {counts['equal']} of {counts['replayed']} equal, {counts['deliberate']} deliberate differences"
        f" ({counts['left_out']} exchanges of replayed recordings left out)"
    )


@pytest.mark.parametrize("file", SCENARIOS)
def test_answers_equal_the_recorded_ones(
    file: str,
    request: pytest.FixtureRequest,
    runner: asyncio.Runner,
    recorded: Fixture,
    tally: dict[str, int],
    tmp_path: Path,
) -> None:
    """Status, reason, headers, JSON text and scores (to 1e-4) are the recorded ones, but for the listed differences."""
    scenario = SCENARIOS[file]
    if scenario.store is None:
        shared = request.getfixturevalue("shared")
        found = runner.run(_replay_file(file, scenario, shared, recorded, None))
    else:
        found = runner.run(_replay_on_own_store(file, scenario, recorded, tmp_path))
    for index in scenario.left_out:
        del found[index]
    tally["replayed"] += len(found)
    tally["equal"] += sum(not texts for texts in found.values())
    tally["deliberate"] += len(scenario.deliberate)
    tally["left_out"] += len(scenario.left_out)
    unlisted = {index: texts for index, texts in found.items() if texts and index not in scenario.deliberate}
    assert unlisted == {}
    assert [index for index in scenario.deliberate if not found[index]] == [], "listed as different, but equal"


def test_every_recording_is_accounted_for() -> None:
    """A recording is either replayed or left out by name with a reason, so none is forgotten."""
    files = {file.name for file in VECTORS.glob("[0-9]*.json")} - {"00_index.json"}
    assert files == SCENARIOS.keys() | LEFT_OUT_FILES.keys()


def test_a_failing_model_of_the_store_ends_the_container(
    runner: asyncio.Runner, recorded: Fixture, tmp_path: Path
) -> None:
    """As recorded (15): with one good model and one that fails, the container ends with exit code 1."""
    store = recorded.store("failing", {"f": "initfail", "ok": "code1"})
    with pytest.raises(ContainerError, match="exit code 1"):
        runner.run(_start(store, tmp_path / "container.log"))


def test_a_plain_file_makes_the_store_the_model(runner: asyncio.Runner, recorded: Fixture, tmp_path: Path) -> None:
    """As recorded (17): a README beside a model folder makes the store itself the model, which cannot be loaded."""
    store = recorded.store("mixed", {"m": "code1"})
    (store / "README").touch()
    with pytest.raises(ContainerError, match="exit code 1"):
        runner.run(_start(store, tmp_path / "container.log"))


async def _start(store: Path, log_file: Path) -> Container:
    return await Container.start(model_store=store, multi_model=True, hub_roots=default_roots(), log_file=log_file)


async def _replay_on_own_store(
    file: str, scenario: Scenario, recorded: Fixture, tmp_path: Path
) -> dict[int, list[str]]:
    models = scenario.store or {}
    root = recorded.store(file.partition("_")[0], models)
    first = next(iter(models)).partition("/")[0]
    store = root if scenario.store_is_placeholder else root / first
    container = await _start(store, tmp_path / "container.log")
    try:
        return await _replay_file(file, scenario, container, recorded, root)
    finally:
        await container.stop()


async def _replay_file(
    file: str, scenario: Scenario, container: Container, recorded: Fixture, root: Path | None
) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    async with httpx.AsyncClient(base_url=container.url, timeout=60, trust_env=False) as client:
        if scenario.store is None:
            await _delete(client, ("*",))
        for model in scenario.loaded:
            answer = await client.post("/models", json={"model_name": model, "url": str(recorded.models / model)})
            answer.raise_for_status()
        for group in groups(load(file, recorded, root)):
            await _prepare(client, scenario, group[0])
            answers = await replay(int(container.url.rpartition(":")[2]), group)
            found |= {exchange.index: differences(exchange, answers[exchange.index]) for exchange in group}
    return found


async def _prepare(client: httpx.AsyncClient, scenario: Scenario, exchange: Exchange) -> None:
    await _delete(client, scenario.deleted.get(exchange.index, ()))
    if exchange.index in scenario.scaled:
        await client.put(scenario.scaled[exchange.index])
    await asyncio.sleep(scenario.waits.get(exchange.index, 0))


async def _delete(client: httpx.AsyncClient, names: tuple[str, ...]) -> None:
    if names == ("*",):
        names = tuple(model["modelName"] for model in (await client.get("/models")).json()["models"])
    for name in names:
        await client.delete(f"/models/{name}")
