"""Fixtures: an embedded SageMaker with fake containers, and moto for the other services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from moto.server import ThreadedMotoServer

from local_aws.sagemaker.settings import Settings
from local_aws.testing.sagemaker_cloud import Cloud, archive, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from local_aws.kit.clock import Clock


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Start one moto server for all tests."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def make_cloud(moto_url: str, tmp_path: Path) -> Iterator[Callable[..., Cloud]]:
    """Return an emulator with settings of the test, and with its own clock if given."""
    clouds: list[Cloud] = []

    def make(*, clock: Clock | None = None, **settings: Any) -> Cloud:
        reset(moto_url)
        whole = {
            "instance_idle_s": 0,
            "publish_interval_s": 0.05,
            "alive_interval_s": 0.02,
            "ping_interval_s": 0.05,
            "replacement_delay_s": 0,
            **settings,
        }
        clouds.append(Cloud(moto_url, tmp_path, Settings(**whole), clock))
        return clouds[-1]

    yield make
    for cloud in clouds:
        cloud.close()
        assert cloud.factory.running == []


@pytest.fixture
def cloud(make_cloud: Callable[..., Cloud]) -> Cloud:
    """An emulation with the service's own time limits."""
    return make_cloud()


@pytest.fixture
def wait() -> Callable[..., None]:
    """Wait until a condition holds."""
    return wait_for


@pytest.fixture
def pack() -> Callable[[dict[str, str]], bytes]:
    """Packs files into an archive."""
    return archive


def reset(moto_url: str) -> None:
    """Empty moto."""
    httpx.post(f"{moto_url}/moto-api/reset", trust_env=False, timeout=60).raise_for_status()
