"""Models are evicted, the least recently used first, or after each call with disabled caching."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.sagemaker.model_cache.eviction import Eviction
from local_aws.sagemaker.model_cache.models import CachedModel, CachedModels
from local_aws.testing.sagemaker_cloud import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud


class Instance:
    """A container, disk, log and meter that take everything; `unloaded` are the models that went, in order."""

    def __init__(self) -> None:
        self.unloaded: list[str] = []
        self.models = CachedModels()
        parts: Any = self
        self.eviction = Eviction(self.models, api=parts, disk=parts, log=parts, meter=parts)

    def loaded(self, target: str, *, last_used: float, leases: int = 0) -> CachedModel:
        """Add a loaded model with this number of calls in progress."""
        model = self.models.add(target)
        model.loaded, model.last_used, model.leases = True, last_used, leases
        return model

    async def unload(self, model_id: str) -> None:
        """Unload a model as the container does."""
        self.unloaded += [model.target for model in self.models.by_last_use() if model.model_id == model_id]

    def note(self, text: str) -> None:
        """Record an event as the log does."""

    def duration(self, name: str, seconds: float) -> None:
        """Record a duration as the meter does."""


def test_an_idle_model_goes_before_a_busy_one() -> None:
    """An idle model is evicted before a busy one, even if it was used later."""
    instance = Instance()
    needy = instance.loaded("needy", last_used=1)
    instance.loaded("retiring", last_used=2).retiring = True
    busy = instance.loaded("busy", last_used=3, leases=1)
    assert instance.eviction.victim(needy) is busy
    idle = instance.loaded("idle", last_used=4)
    assert instance.eviction.victim(needy) is idle


def test_a_call_makes_room_beside_its_model_by_idle_ones_only() -> None:
    """A call evicts only idle models, because two calls that wait for busy models could wait for each other."""
    instance = Instance()
    mine = instance.loaded("mine", last_used=1, leases=1)
    instance.loaded("idle", last_used=2)
    instance.loaded("busy", last_used=3, leases=1)

    async def scene() -> list[bool]:
        return [await instance.eviction.make_room_beside(mine) for _ in range(2)]

    assert asyncio.run(scene()) == [True, False]
    assert (instance.unloaded, instance.eviction.evictions) == (["idle"], 1)


@pytest.mark.process
def test_the_least_recently_used_model_makes_room(cloud: Cloud) -> None:
    """If a container has no memory left, the model with the oldest last call is unloaded."""
    for name in "abc":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.factory.room = 2
    cloud.deploy()
    for name in "abac":
        assert cloud.invoke(f"{name}.tar.gz")["answer"] == name
    assert [model.target for model in cloud.cache().models] == ["a.tar.gz", "c.tar.gz"]
    assert cloud.cache().evictions == 1


@pytest.mark.process
def test_more_models_than_memory_are_all_answered(cloud: Cloud) -> None:
    """Traffic over three models with memory for two is answered call by call, with evictions."""
    for name in "abc":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.factory.room = 2
    cloud.deploy()
    assert [cloud.invoke(f"{name}.tar.gz")["answer"] for name in "abcabc"] == list("abcabc")
    assert cloud.cache().evictions == 4


@pytest.mark.process
@pytest.mark.parametrize("room", [1, 2])
def test_busy_models_do_not_keep_others_out(cloud: Cloud, room: int) -> None:
    """With too little memory for all busy models, every caller is answered by its own model."""
    for name in "abc":
        cloud.put_model(f"{name}.tar.gz", answer=name, behaviour="load=0.01\ninvoke=0.01")
    cloud.factory.room = room
    cloud.deploy()

    def work(name: str) -> list[str]:
        return [cloud.invoke(f"{name}.tar.gz")["answer"] for _ in range(5)]

    outcomes = in_threads(*[lambda name=name: work(name) for name in "abcabcabc"])
    assert outcomes == [[name] * 5 for name in "abcabcabc"]
    assert len(cloud.factory.started[0].models) <= room


@pytest.mark.process
def test_an_evicted_model_comes_back_from_the_instances_disk(cloud: Cloud) -> None:
    """An evicted model is loaded again from the instance's disk without S3."""
    for name in "ab":
        cloud.put_model(f"{name}.tar.gz", answer=name)
    cloud.factory.room = 1
    cloud.deploy()
    cloud.invoke("a.tar.gz")
    cloud.invoke("b.tar.gz")
    cloud.s3.delete_object(Bucket="models", Key="p/a.tar.gz")
    assert cloud.invoke("a.tar.gz")["answer"] == "a"


@pytest.mark.process
def test_a_model_too_large_for_an_empty_container_is_a_model_error(cloud: Cloud) -> None:
    """If no model is left to unload, the caller gets the container's 507."""
    cloud.put_model("a.tar.gz", answer="a")
    cloud.factory.room = 0
    cloud.deploy()
    with pytest.raises(cloud.runtime.exceptions.ModelError) as caught:
        cloud.invoke()
    assert caught.value.response["OriginalStatusCode"] == 507


@pytest.mark.process
def test_with_caching_disabled_a_model_goes_after_its_call(cloud: Cloud, wait: Callable[..., None]) -> None:
    """ModelCacheSetting Disabled unloads a model and deletes its files after each call."""
    cloud.put_model("a.tar.gz", answer="first")
    cloud.deploy(MultiModelConfig={"ModelCacheSetting": "Disabled"})
    assert cloud.invoke()["answer"] == "first"
    wait(lambda: cloud.look(lambda: not cloud.cache().models))
    # Unlike rglob, walk goes on where a folder goes while it looks.
    wait(lambda: not any("answer" in files for _, _, files in os.walk(cloud.state_dir / "endpoints")))
    cloud.put_model("a.tar.gz", answer="second")
    assert cloud.invoke()["answer"] == "second"
