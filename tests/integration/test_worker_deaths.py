"""Deaths of workers under load, through the emulated endpoint: batched models come back, stock ones do not.

The archives are the product's own, rendered from a catalog.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pytest
from botocore.exceptions import ClientError
from cloud_fixtures.running import leaving_no_process, running, wait_for
from test_endpoint_faults import Aws

from cohost.artifacts.archive import pack
from cohost.catalog import load_catalog
from cohost.render import archives_of
from local_aws.hub import default_roots
from local_aws.sagemaker import SageMaker
from local_aws.sagemaker import Settings as SageMakerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHED = ("one", "two", "three")
CALLERS = 8
ROUNDS = 20
GONE = "Backend Python process is stopped."
CATALOG = """
endpoint:
  name: e
  instance_type: ml.g5.xlarge
  image: djl-inference:0.36.0-lmi26.0.0-cu130
acknowledge:
  revision-not-pinned: These models come from this machine's own hub, which holds one revision of each.
models:
"""
MODEL = """
  {name}:
    model_id: lmi-cohost/tiny-minilm-nli
    task: text-classification
    required_memory_mb: {memory_mb}
    cpu: {{minWorkers: 1, maxWorkers: 1}}
"""
WITH_OURS = "    handler: batched\n    batched: {pass_timeout_s: 2}\n"


def archives(folder: Path, *, memory_mb: int = 1024) -> dict[str, bytes]:
    """The archives of three batched models and a stock one, as a deploy publishes them."""
    file = folder / "catalog.yaml"
    models = [MODEL.format(name=name, memory_mb=memory_mb) + WITH_OURS for name in BATCHED]
    file.write_text("".join([CATALOG, *models, MODEL.format(name="stock", memory_mb=memory_mb)]))
    catalog = load_catalog(file)
    return {name: pack(files) for name, files in archives_of(catalog, catalog.models)}


class Deployed(Aws):
    """The endpoint with the product's archives in its prefix, and what its one instance holds."""

    @property
    def restarts(self) -> int:
        """How often the instance's container was replaced."""
        return int(self._instance()["restarts"])

    def workers(self) -> list[int]:
        """The process ids of all workers of the instance, those that no model lists too."""
        container = psutil.Process(self._instance()["pid"])
        (fork_server,) = [child for child in container.children() if "zygote" in " ".join(child.cmdline())]
        return sorted(child.pid for child in fork_server.children() if child.status() != psutil.STATUS_ZOMBIE)

    def log(self) -> str:
        """What the instance has logged."""
        return Path(self._instance()["log_file"]).read_text()

    def break_worker(self, model: str, fault: str) -> None:
        """Have a model's worker die, hang, or lose its device."""
        fault_of = {"endpoint": "e", "model": f"{model}.tar.gz", "fault": fault}
        self._door.page("/_cohost/faults", worker_fault=fault_of)

    def outcome(self, name: str) -> str:
        """`ok`, or the text of the error that a call gets."""
        try:
            self.call(name, "the movie was great")
        except ClientError as error:
            return str(error.response.get("OriginalMessage") or error.response["Error"]["Message"])
        return "ok"


class Callers:
    """Eight callers over several models; `outcomes` are what they got, per model, in order."""

    def __init__(self, aws: Deployed, names: tuple[str, ...]) -> None:
        self.outcomes: dict[str, list[str]] = {name: [] for name in names}
        self._aws = aws
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(CALLERS)

    def __enter__(self) -> Self:
        """Begin, and wait until each model has been called."""
        for name in itertools.islice(itertools.cycle(self.outcomes), CALLERS):
            self._pool.submit(self._call, name)
        self.each_called(3)
        return self

    def __exit__(self, *_: object) -> None:
        """End, with the calls under way answered."""
        self._ended.set()
        self._pool.shutdown()

    def each_called(self, times: int) -> None:
        """Wait until each model got so many calls more."""
        wanted = {name: len(found) + times for name, found in self.outcomes.items()}
        wait_for(lambda: all(len(self.outcomes[name]) >= least for name, least in wanted.items()))

    def _call(self, name: str) -> None:
        while not self._ended.is_set():
            self.outcomes[name].append(self._aws.outcome(name))


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """An endpoint whose instance is given up after two failed pings, with three batched models and a stock one."""
    health = SageMakerSettings(ping_interval_s=0.5, ping_failures=2, replacement_delay_s=0.5, publish_interval_s=0.2)
    make = functools.partial(SageMaker, settings=health)
    state, roots = tmp_path_factory.mktemp("state"), tuple(default_roots())
    with leaving_no_process(), running(state, make, hub_roots=roots) as door:
        made = Deployed(door)
        for name, content in archives(tmp_path_factory.mktemp("catalog")).items():
            made.push(name, content)
        made.push("stock-2", archives(tmp_path_factory.mktemp("again"))["stock"])
        yield made


def _all_answer(aws: Deployed, names: tuple[str, ...] = BATCHED) -> None:
    wait_for(lambda: [aws.outcome(name) for name in names] == ["ok"] * len(names))


@pytest.mark.parametrize("fault", ["die", "lose_device", "hang"])
def test_a_batched_model_comes_back_and_the_others_lose_no_call(aws: Deployed, fault: str) -> None:
    """Under eight callers: the struck model answers again by one new process, and the container is never replaced."""
    _all_answer(aws)
    before, replaced = aws.workers(), aws.restarts
    with Callers(aws, BATCHED) as callers:
        aws.break_worker("two", fault)
        wait_for(lambda: any(one != "ok" for one in callers.outcomes["two"]))
        wait_for(lambda: callers.outcomes["two"][-1] == "ok")
        callers.each_called(3)
    assert set(callers.outcomes["one"]) | set(callers.outcomes["three"]) == {"ok"}
    assert callers.outcomes["two"][-1] == "ok"
    after = aws.workers()
    assert (len(after), len(set(after) & set(before))) == (len(before), len(before) - 1)
    assert aws.restarts == replaced


def test_a_batched_worker_that_the_system_kills_comes_back(aws: Deployed) -> None:
    """`kill -9` of each worker in turn, as when memory runs out: each time one process dies and one takes its place."""
    _all_answer(aws)
    replaced = aws.restarts
    for victim in aws.workers():
        others = set(aws.workers()) - {victim}
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda victim=victim: victim not in aws.workers())
        _all_answer(aws)
        assert others < set(aws.workers())
        assert len(aws.workers()) == len(others) + 1
    assert aws.restarts == replaced


def test_loading_and_evicting_leaves_no_process(aws: Deployed, tmp_path: Path) -> None:
    """Twenty rounds of three models in memory for two: each call evicts one, and no process outlives its model."""
    for name, content in archives(tmp_path, memory_mb=7000).items():
        aws.push(f"large-{name}", content)
    names = [f"large-{name}" for name in BATCHED]
    replaced = aws.restarts
    for _ in range(ROUNDS):
        for name in names:
            aws.wait_until_it_answers(name)
            wait_for(lambda: len(aws.workers()) == len(aws.loaded))
    assert aws.evictions >= ROUNDS * len(names) - 2
    assert aws.restarts == replaced


def test_a_stock_worker_that_dies_idle_answers_400_for_ever(aws: Deployed) -> None:
    """As recorded (24): the model stays listed, pings stay good, the instance stays, and others answer."""
    _all_answer(aws, ("stock", "one"))
    replaced = aws.restarts
    aws.break_worker("stock", "die")
    for _ in range(20):
        assert GONE in aws.outcome("stock")
    assert "stock" in aws.loaded
    assert (aws.outcome("one"), aws.restarts) == ("ok", replaced)


def test_a_stock_worker_that_dies_in_a_call_costs_all_models_of_the_instance(aws: Deployed) -> None:
    """As recorded (25): the model is given up and `/ping` turns 500, so another container starts, all models cold."""
    _all_answer(aws, (*BATCHED, "stock-2"))
    replaced = aws.restarts
    with Callers(aws, ("stock-2",)):
        aws.break_worker("stock-2", "die")
        wait_for(lambda: aws.restarts == replaced + 1)
    _all_answer(aws, (*BATCHED, "stock", "stock-2"))
    assert "500" in aws.log()
