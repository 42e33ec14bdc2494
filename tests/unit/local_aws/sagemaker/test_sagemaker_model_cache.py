"""Models of a multi-model endpoint: first calls, slow and failing loads, eviction, stale copies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from fakes.faults import faulted

from local_aws.sagemaker.model_cache.disk import ModelDisk
from local_aws.sagemaker.settings import Settings
from local_aws.testing.fake_container import Gate
from local_aws.testing.sagemaker_cloud import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.testing.sagemaker_cloud import Cloud

pytestmark = pytest.mark.process


def test_limits_are_the_services() -> None:
    """The default limits are 60 s for an answer, 360 s for a load, 60 s for a container."""
    limits = Settings()
    assert (limits.load_wait_s, limits.load_limit_s, limits.invocation_timeout_s) == (60, 360, 60)


def test_concurrent_first_calls_share_one_load(cloud: Cloud) -> None:
    """However many callers come first, a model is fetched and loaded once."""
    cloud.put_model("a.tar.gz", answer="a", behaviour="load=0.2")
    cloud.deploy()
    outcomes = in_threads(*[cloud.invoke] * 8)
    assert [outcome["answer"] for outcome in outcomes] == ["a"] * 8
    assert len(cloud.factory.started[0].loads) == 1


def test_a_loaded_copy_is_never_read_again(cloud: Cloud) -> None:
    """Overwriting or deleting the object changes nothing where the model is loaded."""
    cloud.put_model("a.tar.gz", answer="first")
    cloud.deploy()
    assert cloud.invoke()["answer"] == "first"
    cloud.put_model("a.tar.gz", answer="second")
    assert cloud.invoke()["answer"] == "first"
    cloud.s3.delete_object(Bucket="models", Key="p/a.tar.gz")
    assert cloud.invoke()["answer"] == "first"


def test_instances_have_copies_of_their_own(cloud: Cloud, wait: Callable[..., None]) -> None:
    """A model overwritten between two first calls answers differently on each instance, as on the service."""
    cloud.put_model("a.tar.gz", answer="first", behaviour="invoke=held")
    cloud.put_model("b.tar.gz", answer="b")
    cloud.deploy(count=2)
    assert cloud.invoke()["answer"] == "first"
    cloud.put_model("a.tar.gz", answer="second")
    replicas: list[Any] = [cloud.replica(0), cloud.replica(1)]

    def let_go() -> None:
        wait(lambda: cloud.look(lambda: all(replica.cache.models for replica in replicas)))
        cloud.factory.gate.open()

    cloud.factory.gate.shut()
    outcomes = in_threads(let_go, *[cloud.invoke] * 20)[1:]
    assert {outcome["answer"] for outcome in outcomes} == {"first", "second"}


def test_a_slow_load_is_not_ready_and_goes_on(make_cloud: Callable[..., Cloud], wait: Callable[..., None]) -> None:
    """A load over the limit gives 429 and continues, and later calls succeed."""
    cloud = make_cloud(load_wait_s=0.2)
    cloud.put_model("slow.tar.gz", answer="slow", behaviour="load=held")
    cloud.put_model("quick.tar.gz", answer="quick")
    cloud.deploy()
    cloud.factory.gate.shut()
    with pytest.raises(cloud.runtime.exceptions.ModelNotReadyException) as caught:
        cloud.invoke("slow.tar.gz")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert cloud.invoke_in_the_end("quick.tar.gz") == "quick"
    cloud.factory.gate.open()
    wait(lambda: cloud.look(lambda: cloud.cache().loaded_count == 2))
    assert cloud.invoke("slow.tar.gz")["answer"] == "slow"
    assert len(cloud.factory.started[0].loads) == 2


def test_a_load_that_takes_for_ever_is_given_up(make_cloud: Callable[..., Cloud]) -> None:
    """A load over its time limit is unloaded from the container, and a later call loads the model again."""
    cloud = make_cloud(load_limit_s=0.3)
    cloud.put_model("a.tar.gz", behaviour="load=held")
    cloud.deploy()
    cloud.factory.gate.shut()
    with faulted("ModelError", 424, "0.3 seconds"):
        cloud.invoke()
    assert len(cloud.cache().models) == 0
    cloud.put_model("a.tar.gz", answer="mended")
    assert cloud.invoke_in_the_end("a.tar.gz") == "mended"


def test_a_load_that_fails_is_a_model_error_and_can_be_mended(cloud: Cloud) -> None:
    """The container's refusal reaches every waiting caller; after a new upload the next call succeeds."""
    cloud.put_model("a.tar.gz", behaviour="load=0.1\nload_status=500")
    cloud.deploy()
    outcomes = in_threads(*[cloud.invoke] * 3)
    assert {type(outcome).__name__ for outcome in outcomes} == {"ModelError"}
    assert outcomes[0].response["OriginalStatusCode"] == 500
    assert "Failed to initialize model" in outcomes[0].response["OriginalMessage"]
    cloud.put_model("a.tar.gz", answer="mended")
    assert cloud.invoke()["answer"] == "mended"


def test_a_corrupt_archive_is_a_validation_error_and_can_be_mended(cloud: Cloud) -> None:
    """The error of a corrupt archive names bucket and key, no file is left, and the archive can be replaced."""
    cloud.s3.put_object(Bucket="models", Key="p/a.tar.gz", Body=b"no archive")
    cloud.deploy()
    with faulted("ValidationError", 400, "Failed to extract model data(bucket: models"):
        cloud.invoke()
    assert [path for path in (cloud.state_dir / "endpoints").rglob("*") if path.is_file()] == []
    cloud.put_model("a.tar.gz", answer="mended")
    assert cloud.invoke()["answer"] == "mended"


@pytest.fixture
def held_discards(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Delay the deletion of files on instances' disks."""
    gate, own = Gate(), ModelDisk.discard

    async def discard(disk: ModelDisk, name: str) -> None:
        await gate.passed()
        await own(disk, name)

    monkeypatch.setattr(ModelDisk, "discard", discard)
    return gate


def test_a_copy_that_is_being_removed_is_not_loaded(
    cloud: Cloud, wait: Callable[..., None], held_discards: Gate
) -> None:
    """A call during the deletion of a model's files waits and fetches the model again."""
    cloud.put_model("a.tar.gz", answer="first")
    cloud.deploy(MultiModelConfig={"ModelCacheSetting": "Disabled"})
    held_discards.shut()
    assert cloud.invoke()["answer"] == "first"
    cloud.put_model("a.tar.gz", answer="second")
    wait(lambda: cloud.factory.started[0].unloads)

    def let_go() -> None:
        wait(lambda: cloud.replica().in_flight)
        held_discards.open()

    _, outcome = in_threads(let_go, cloud.invoke)
    assert outcome["answer"] == "second"


def test_a_model_that_could_not_be_loaded_stays_until_its_copy_is_gone(
    cloud: Cloud, wait: Callable[..., None], held_discards: Gate
) -> None:
    """A model that failed to load stays in the cache until its files are deleted."""
    cloud.put_model("a.tar.gz", behaviour="load_status=500")
    cloud.deploy()
    held_discards.shut()

    def let_go() -> bool:
        wait(lambda: "a.tar.gz was not loaded" in next((cloud.state_dir / "logs" / "e").iterdir()).read_text())
        held = bool(cloud.look(lambda: cloud.cache().holds("a.tar.gz")))
        held_discards.open()
        return held

    held, outcome = in_threads(let_go, cloud.invoke)
    assert held is True
    assert type(outcome).__name__ == "ModelError"
    assert not cloud.look(lambda: cloud.cache().holds("a.tar.gz"))


def test_a_container_that_dies_while_loading_fails_the_call_and_recovers(
    cloud: Cloud, wait: Callable[..., None]
) -> None:
    """A call whose container dies during the load ends with an error at once; the next container serves the model."""
    cloud.put_model("a.tar.gz", answer="a", behaviour="load=held")
    cloud.put_model("b.tar.gz", answer="b")
    cloud.deploy()
    cloud.factory.gate.shut()
    outcomes: list[Any] = []
    caller = threading.Thread(target=lambda: outcomes.extend(in_threads(cloud.invoke)))
    caller.start()
    wait(lambda: cloud.factory.started[0].loading)
    cloud.run(cloud.factory.started[0].die())
    caller.join()
    assert type(outcomes[0]).__name__ == "ModelError"
    wait(lambda: len(cloud.factory.running) == 1)
    wait(lambda: cloud.replica().ready)
    assert cloud.invoke("b.tar.gz")["answer"] == "b"
