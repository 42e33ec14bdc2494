"""Create, update and delete: which objects come and go, also when S3 fails half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.archives.archive import content_digest
from cohost.archives.errors import ArtifactError
from cohost.archives.generation import generation_id
from cohost.archives.publisher import Publisher
from cohost.archives.store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import Spy

    Keys = Callable[[], set[str]]
    Files = dict[str, dict[str, bytes]]


def models(**contents: str) -> Files:
    """Return the files of each model, which differ by one word."""
    return {name: {"serving.properties": f"engine={word}\n".encode()} for name, word in contents.items()}


def digest(word: str) -> str:
    """The content digest of a model with that word."""
    return content_digest(models(m=word)["m"])


def id_of(**contents: str) -> str:
    """Return the id of the generation of these models."""
    return generation_id({name: digest(word) for name, word in contents.items()})


def archive(generation: str, name: str) -> str:
    """The key of a model's archive."""
    return f"encoders/{generation}/{name}.tar.gz"


@pytest.fixture
def publisher(spy: Spy) -> Publisher:
    """Return a publisher without a time limit, whose client can be made to fail."""
    return Publisher(ModelStore(spy, "models", "encoders/"), before_undo=lambda: None)  # type: ignore[arg-type]


def test_created_generation_holds_the_models_and_nothing_else(publisher: Publisher, keys: Keys) -> None:
    """A created generation contains exactly the archives, and no mark is left."""
    generation = publisher.create(models(a="1", b="1"))
    assert generation == id_of(a="1", b="1")
    assert keys() == {archive(generation, "a"), archive(generation, "b")}


def test_repeated_create_writes_nothing(publisher: Publisher, spy: Spy) -> None:
    """A repeated Create event finds the archives of the first one and writes nothing."""
    first = publisher.create(models(a="1"))
    before = len(spy.calls["put_object"])
    assert publisher.create(models(a="1")) == first
    assert len(spy.calls["put_object"]) == before


def test_create_does_not_take_up_another_resource_s_generation(publisher: Publisher) -> None:
    """A new resource does not share the generation of another, because either may be deleted."""
    publisher.create(models(a="1", b="1"))
    assert publisher.create(models(a="1")) == id_of(a="1")


def test_create_goes_round_a_foreign_object(publisher: Publisher, s3: S3Client, keys: Keys) -> None:
    """If somebody else's object has the key of an archive, another generation id is used and the object stays."""
    taken = archive(id_of(a="1"), "a")
    s3.put_object(Bucket="models", Key=taken, Body=b"theirs")
    generation = publisher.create(models(a="1"))
    assert generation != id_of(a="1")
    assert keys() == {taken, archive(generation, "a")}


def test_added_model_is_one_upload_into_the_same_generation(publisher: Publisher, spy: Spy, keys: Keys) -> None:
    """An added model is one upload into the same generation, and no archive is written again."""
    current = publisher.create(models(a="1"))
    before = len(spy.calls["put_object"])
    assert publisher.update(models(a="1", b="1"), current, {"a"}) == current
    assert len(spy.calls["put_object"]) == before + 1
    assert keys() == {archive(current, "a"), archive(current, "b")}


def test_removed_model_leaves_only_its_note(publisher: Publisher, keys: Keys) -> None:
    """Removing a model deletes its archive and writes its tombstone; the generation stays the same."""
    current = publisher.create(models(a="1", b="1"))
    assert publisher.update(models(a="1"), current, {"a", "b"}) == current
    assert keys() == {archive(current, "a"), f"encoders/removed/{current}/b/{digest('1')}"}


def test_pushed_and_foreign_objects_survive_an_update(publisher: Publisher, s3: S3Client, keys: Keys) -> None:
    """An update deletes neither a pushed model's archive nor an object that this project did not write."""
    current = publisher.create(models(a="1", b="1"))
    ModelStore(s3, "models", "encoders/").add(current, "pushed", models(m="9")["m"])
    s3.put_object(Bucket="models", Key=archive(current, "theirs"), Body=b"")
    assert publisher.update(models(a="1"), current, {"a", "b", "theirs"}) == current
    assert {archive(current, "pushed"), archive(current, "theirs")} <= keys()


def test_pushed_model_that_joins_the_catalog_is_not_written_again(publisher: Publisher, s3: S3Client, spy: Spy) -> None:
    """A deploy of a pushed model writes nothing."""
    current = publisher.create(models(a="1"))
    ModelStore(s3, "models", "encoders/").add(current, "b", models(m="1")["m"])
    before = len(spy.calls["put_object"])
    assert publisher.update(models(a="1", b="1"), current, {"a"}) == current
    assert len(spy.calls["put_object"]) == before


def test_changed_model_makes_a_new_generation_and_keeps_the_old_one(publisher: Publisher, keys: Keys) -> None:
    """A changed model publishes all models in a new generation; the old one stays until CloudFormation deletes it."""
    old = publisher.create(models(a="1", b="1"))
    new = publisher.update(models(a="2", b="1"), old, {"a", "b"})
    assert new == id_of(a="2", b="1") != old
    assert keys() == {archive(generation, name) for generation in (old, new) for name in "ab"}


def test_rollback_takes_up_the_old_generation_without_a_write(publisher: Publisher, spy: Spy) -> None:
    """A rollback returns to the stored old generation without a write."""
    old = publisher.create(models(a="1"))
    new = publisher.update(models(a="2"), old, {"a"})
    before = len(spy.calls["put_object"])
    assert publisher.update(models(a="1"), new, {"a"}) == old
    assert len(spy.calls["put_object"]) == before


def test_rollback_of_an_addition_removes_it_again(publisher: Publisher, keys: Keys) -> None:
    """Rolling back an added model deletes its archive in the same generation and writes its tombstone."""
    current = publisher.create(models(a="1"))
    publisher.update(models(a="1", b="1"), current, {"a"})
    assert publisher.update(models(a="1"), current, {"a", "b"}) == current
    assert keys() == {archive(current, "a"), f"encoders/removed/{current}/b/{digest('1')}"}


def test_old_generation_taken_up_is_brought_to_what_is_wanted(publisher: Publisher, keys: Keys) -> None:
    """An old generation that is used again gets missing models and loses those that are not wanted."""
    old = publisher.create(models(a="1", gone="1"))
    new = publisher.update(models(a="2", gone="1"), old, {"a", "gone"})
    assert publisher.update(models(a="1", b="1"), new, {"a", "gone"}) == old
    there = {key for key in keys() if key.startswith(f"encoders/{old}/")}
    assert there == {archive(old, "a"), archive(old, "b")}


def test_removed_name_with_other_content_needs_a_new_generation(publisher: Publisher) -> None:
    """A removed name with other content needs a new generation, because the old archive may be loaded."""
    current = publisher.create(models(a="1", b="1"))
    publisher.update(models(a="1"), current, {"a", "b"})
    assert publisher.update(models(a="1", b="2"), current, {"a"}) != current


def test_removed_name_with_the_same_content_comes_back(publisher: Publisher) -> None:
    """A removed name with the same content is added to the same generation."""
    current = publisher.create(models(a="1", b="1"))
    publisher.update(models(a="1"), current, {"a", "b"})
    assert publisher.update(models(a="1", b="1"), current, {"a"}) == current


def test_moved_store_publishes_anew(publisher: Publisher) -> None:
    """A model store with another bucket or prefix publishes all archives again."""
    assert publisher.update(models(a="1"), None, {"a"}) == id_of(a="1")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_failed_create_leaves_nothing(publisher: Publisher, spy: Spy, keys: Keys, number: int) -> None:
    """After any failed write the attempt leaves no object, and a second attempt succeeds."""
    spy.fail("put_object", number)
    with refused("store-request-failed"):
        publisher.create(models(a="1", b="1"))
    assert keys() == set()
    assert publisher.create(models(a="1", b="1")) == id_of(a="1", b="1")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_failed_roll_leaves_the_old_generation_whole(publisher: Publisher, spy: Spy, keys: Keys, number: int) -> None:
    """A new generation that cannot be written is deleted, and the old one stays unchanged."""
    old = publisher.create(models(a="1", b="1"))
    before = keys()
    spy.fail("put_object", number)
    with refused("store-request-failed"):
        publisher.update(models(a="2", b="1"), old, {"a", "b"})
    assert keys() == before


def test_failed_addition_takes_back_what_it_wrote(publisher: Publisher, spy: Spy, keys: Keys) -> None:
    """A failed addition deletes the archives that it wrote, and leaves tombstones of them."""
    current = publisher.create(models(a="1"))
    spy.fail("put_object", 2)
    with refused("store-request-failed"):
        publisher.update(models(a="1", b="1", c="1"), current, {"a"})
    assert keys() == {archive(current, "a"), f"encoders/removed/{current}/b/{digest('1')}"}
    assert publisher.update(models(a="1", b="1", c="1"), current, {"a"}) == current


def test_write_whose_answer_was_lost_is_taken_back_too(
    publisher: Publisher, spy: Spy, s3: S3Client, keys: Keys
) -> None:
    """A write that S3 reported as failed is undone, too, because S3 may have done it."""
    current = publisher.create(models(a="1"))

    def lose_answer() -> None:
        ModelStore(s3, "models", "encoders/").put(current, "b", models(m="1")["m"])
        raise ConnectionError

    spy.before("put_object", 1, lose_answer)
    with pytest.raises(ConnectionError):
        publisher.update(models(a="1", b="1"), current, {"a"})
    assert archive(current, "b") not in keys()


def test_failed_removal_leaves_the_models(publisher: Publisher, spy: Spy, keys: Keys) -> None:
    """If a tombstone cannot be written, no model is removed, and added ones are deleted."""
    current = publisher.create(models(a="1", b="1"))
    spy.fail("put_object", 2)
    with pytest.raises(ArtifactError):
        publisher.update(models(a="1", c="1"), current, {"a", "b"})
    assert {archive(current, "a"), archive(current, "b")} <= keys()
    assert archive(current, "c") not in keys()


def test_what_could_not_be_undone_is_swept_by_the_next_event(publisher: Publisher, spy: Spy, keys: Keys) -> None:
    """If undoing fails too, the first error is reported, and the next event cleans up."""
    old = publisher.create(models(a="1", b="1"))
    before = keys()
    spy.fail("put_object", 3, "SlowDown")
    spy.fail("delete_objects", 1, "InternalError")
    with refused("store-request-failed"):
        publisher.update(models(a="2", b="1"), old, {"a", "b"})
    assert keys() > before
    assert publisher.update(models(a="1", b="1"), old, {"a", "b"}) == old
    assert keys() == before


def test_sweep_spares_the_generation_in_use(publisher: Publisher, s3: S3Client, keys: Keys) -> None:
    """The generation that CloudFormation names as current is not deleted, even if it is marked as unfinished."""
    current = publisher.create(models(a="1"))
    ModelStore(s3, "models", "encoders/").begin(current)
    publisher.update(models(a="1", b="1"), current, {"a"})
    assert {archive(current, "a"), archive(current, "b")} <= keys()


def test_undoing_gets_time_of_its_own(spy: Spy, keys: Keys) -> None:
    """A failed attempt is undone even if the time for the work is over."""
    left = [5]
    limit = [1]

    def checkpoint() -> None:
        left[0] -= 1
        if left[0] < limit[0]:
            raise ArtifactError("publishing-too-slow", "time limit", "is over")

    def before_undo() -> None:
        limit[0] = -100

    store = ModelStore(spy, "models", "encoders/", checkpoint=checkpoint)  # type: ignore[arg-type]
    with refused("publishing-too-slow"):
        Publisher(store, before_undo).create(models(**dict.fromkeys("abcdefgh", "1")))
    assert keys() == set()


def test_three_hundred_models(publisher: Publisher, spy: Spy, keys: Keys) -> None:
    """Three hundred models cost one write each, one more model one write, and the deletion few calls."""
    many = {f"m{number:03}": {"serving.properties": b"engine=Python\n"} for number in range(300)}
    current = publisher.create(many)
    assert len(spy.calls["put_object"]) == 301
    publisher.update({**many, **models(more="1")}, current, set(many))
    assert len(spy.calls["put_object"]) == 302
    spy.calls["delete_objects"].clear()
    publisher.delete(current)
    assert keys() == set()
    assert len(spy.calls["delete_objects"]) == 2
