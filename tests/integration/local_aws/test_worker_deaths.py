"""Batched models whose workers die, hang, or are evicted under load, through the emulated endpoint.

The archives are the product's own, rendered from a catalog. What becomes of stock models: test_endpoint_faults.py.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from test_endpoint_faults import Aws, all_called, callers

from cohost.archives.archive import pack
from cohost.catalog.serving import archives_of
from cohost.catalog_file import load_catalog
from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots
from local_aws.sagemaker.routes import SageMaker
from local_aws.sagemaker.settings import Settings as SageMakerSettings
from local_aws.testing.running import leaving_no_process, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("one", "two", "three")
STRUCK = "two"
ROUNDS = 8
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
    handler: batched
    batched: {{pass_timeout_s: 2}}
    cpu: {{minWorkers: 1, maxWorkers: 1}}
"""


def archives(folder: Path, *, memory_mb: int) -> dict[str, bytes]:
    """Return the archives of three batched models, as a deploy publishes them."""
    file = folder / "catalog.yaml"
    file.write_text(CATALOG + "".join(MODEL.format(name=name, memory_mb=memory_mb) for name in NAMES))
    catalog = load_catalog(file).catalog
    return {name: pack(files) for name, files in archives_of(catalog, catalog.models)}


class Deployed(Aws):
    """The endpoint, and the processes of its only instance."""

    def workers(self) -> set[int]:
        """The process ids of all workers of the instance, those that no model lists too."""
        return {pid for pid in self._forks() if os.getpgid(pid) != pid}

    def engines(self) -> set[int]:
        """The process ids of all engine processes of the instance; each leads a process group, no worker does."""
        return {pid for pid in self._forks() if os.getpgid(pid) == pid}

    def _forks(self) -> set[int]:
        container = psutil.Process(self._instance()["pid"])
        (fork_server,) = [child for child in container.children() if "zygote" in " ".join(child.cmdline())]
        return {child.pid for child in fork_server.children() if child.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Start an endpoint with three loaded models, whose instance is replaced soon after failed pings."""
    health = SageMakerSettings(ping_interval_s=0.1, ping_failures=2, replacement_delay_s=1, publish_interval_s=0.2)
    make = functools.partial(SageMaker, start_container=Container.start, settings=health)
    state, roots = tmp_path_factory.mktemp("state"), tuple(default_roots())
    with leaving_no_process(), running(state, make, hub_roots=roots) as door:
        made = Deployed(door)
        for name, content in archives(tmp_path_factory.mktemp("catalog"), memory_mb=1024).items():
            made.load(name, content)
        yield made


def test_a_worker_that_dies_comes_back_and_the_others_lose_no_call(aws: Deployed) -> None:
    """Under eight callers: one new process takes the struck one's place, and the container is never replaced."""
    before, restarts = aws.workers(), aws.restarts
    names = list(itertools.islice(itertools.cycle(NAMES), 8))
    with callers(aws, names) as outcomes:
        all_called(outcomes)
        aws.strike(STRUCK, "die")
        wait_for(lambda: any("ModelError" in one for one in outcomes))
        wait_for(lambda: all(one[-1] == "ok" for one in outcomes))
        all_called(outcomes)
        wait_for(lambda: all(one[-1] == "ok" for one in outcomes))
    others = [one for name, one in zip(names, outcomes, strict=True) if name != STRUCK]
    assert set(itertools.chain(*others)) == {"ok"}
    assert (len(aws.workers()), len(aws.workers() & before)) == (len(NAMES), len(NAMES) - 1)
    assert aws.restarts == restarts


@pytest.mark.parametrize("fault", ["lose_device", "hang", "kill"])
def test_an_engine_process_that_ends_costs_no_call(aws: Deployed, fault: str) -> None:
    """Whatever ends the process that runs the model, its proxy has the next one answer; the server notices nothing."""
    workers, engines, restarts = aws.workers(), aws.engines(), aws.restarts
    with callers(aws, list(itertools.islice(itertools.cycle(NAMES), 8))) as outcomes:
        all_called(outcomes)
        if fault == "kill":
            os.kill(min(engines), signal.SIGKILL)
        else:
            aws.strike(STRUCK, fault)
        wait_for(lambda: len(aws.engines() & engines) == len(NAMES) - 1 and len(aws.engines()) == len(NAMES))
        all_called(outcomes)
    assert set(itertools.chain(*outcomes)) == {"ok"}
    assert (aws.workers(), aws.restarts) == (workers, restarts)


def test_a_process_that_the_system_kills_comes_back(aws: Deployed) -> None:
    """After `kill -9` of each worker in turn exactly one new process takes its place."""
    restarts = aws.restarts
    for victim in aws.workers():
        others = aws.workers() - {victim}
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda victim=victim: victim not in aws.workers())
        for name in NAMES:
            aws.wait_until_it_answers(name)
        assert others < aws.workers()
        wait_for(lambda: (len(aws.workers()), len(aws.engines())) == (len(NAMES), len(NAMES)))
    assert aws.restarts == restarts


def test_loading_and_evicting_leaves_no_process(aws: Deployed, tmp_path: Path) -> None:
    """Eight rounds of three further models in memory for two, under eight callers of the others, who lose no call.

    Each load evicts one, and no process outlives its model.
    """
    for name, content in archives(tmp_path, memory_mb=6000).items():
        aws.push(f"large-{name}", content)
    before, restarts = aws.evictions, aws.restarts
    with callers(aws, list(itertools.islice(itertools.cycle(NAMES), 8))) as outcomes:
        for _ in range(ROUNDS):
            for name in NAMES:
                aws.wait_until_it_answers(f"large-{name}")
                wait_for(lambda: (len(aws.workers()), len(aws.engines())) == (len(aws.loaded), len(aws.loaded)))
        all_called(outcomes)
    assert set(itertools.chain(*outcomes)) == {"ok"}
    assert aws.evictions - before >= ROUNDS * len(NAMES) - 2
    assert aws.restarts == restarts
