"""The plan of host memory against workers of the embedded container, measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from cohost.archives.properties import dumps
from cohost.catalog.serving import properties_of
from cohost.catalog_file import load_catalog
from cohost.forecast.plan.memory import demand_of
from cohost.forecast.plan.profiles import load_profiles, profiles_path
from cohost.forecast.plan.workers import EMBEDDED, MIB, cpu_worker_mib
from local_aws.lmi.container import Container
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog

OFFLINE = Path(__file__).parents[2] / "model_configs" / "offline.yaml"
TEXT = "The train to Busan leaves at nine. " * 40
CUT = {"truncation": True, "max_length": 512}


def test_workers_of_the_offline_catalog_are_predicted_within_fifteen_percent(tmp_path: Path) -> None:
    """Each worker's resident memory after a call of full length is within 15 percent of its plan."""
    catalog = load_catalog(OFFLINE).catalog
    profiles = load_profiles(profiles_path(OFFLINE))
    measured = asyncio.run(measure_workers(catalog, tmp_path))
    assert measured.keys() == catalog.models.keys()
    for name, entry in catalog.models.items():
        demand = demand_of(name, entry, profiles[entry.model_id], on_gpu=False)
        assert cpu_worker_mib(demand, EMBEDDED) == pytest.approx(measured[name], rel=0.15), measured


async def measure_workers(catalog: Catalog, folder: Path) -> dict[str, float]:
    """Load and call the models in turn, and return each worker's resident memory in MiB."""
    (folder / "store").mkdir()
    container = await Container.start(
        model_store=folder / "store", multi_model=True, hub_roots=default_roots(), log_file=folder / "log"
    )
    measured: dict[str, float] = {}
    seen: set[int] = set()
    try:
        async with httpx.AsyncClient(
            base_url=container.url, headers=container.headers, trust_env=False, timeout=60
        ) as client:
            for name, entry in catalog.models.items():
                place = folder / name
                place.mkdir()
                (place / "serving.properties").write_text(dumps(properties_of(entry)))
                loaded = await client.post("/models", json={"model_name": name, "url": str(place)})
                assert loaded.status_code == 200, loaded.text
                answer = await client.post(f"/models/{name}/invoke", json={"inputs": TEXT, "parameters": CUT})
                assert answer.status_code == 200, answer.text
                (worker,) = [found for found in workers_of(container.pid) if found.pid not in seen]
                seen.add(worker.pid)
                measured[name] = worker.memory_info().rss / MIB
    finally:
        await container.stop()
    return measured


def workers_of(pid: int) -> list[psutil.Process]:
    """The workers below a container: the children of the process that workers are forked from."""
    (zygote,) = psutil.Process(pid).children()
    found: list[psutil.Process] = zygote.children()
    return found
