"""The model store: models by generation, and additions that never overwrite."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.archives.archive import content_digest, pack
from cohost.archives.errors import ArtifactError
from cohost.archives.store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import Spy

ID = "0123456789ab"
ONE, TWO = {"serving.properties": b"engine=Python\n"}, {"serving.properties": b"engine=MPI\n"}


@pytest.fixture
def store(s3: S3Client) -> ModelStore:
    """Return a model store with one generation that has the model `a`."""
    made = ModelStore(s3, "models", "encoders/")
    made.put(ID, "a", ONE)
    return made


def test_models_are_read_back_with_their_digests(store: ModelStore, s3: S3Client) -> None:
    """The list of models has each stored archive with its content digest, but neither marks nor objects of others."""
    s3.put_object(Bucket="models", Key=f"encoders/{ID}/theirs.tar.gz", Body=b"")
    s3.put_object(Bucket="models", Key=f"encoders/{ID}/notes.txt", Body=b"")
    s3.put_object(Bucket="models", Key="encoders/other/a.tar.gz", Body=b"")
    assert store.models(ID) == {"a": content_digest(ONE)}
    assert store.generations() == (ID,)
    assert store.models("f" * 12) == {}


def test_archive_lies_where_sagemaker_looks(store: ModelStore, s3: S3Client) -> None:
    """The archive has its model's name below the generation's URI, where SageMaker fetches it."""
    assert store.uri(ID) == f"s3://models/encoders/{ID}/"
    body = s3.get_object(Bucket="models", Key=f"encoders/{ID}/a.tar.gz")["Body"].read()
    assert body == pack(ONE)


def test_added_model_is_one_upload(store: ModelStore, spy: Spy) -> None:
    """A new name is one upload, the same content again is none, and the digest is returned."""
    pushing = ModelStore(spy, "models", "encoders/")  # type: ignore[arg-type]
    assert pushing.add(ID, "b", TWO) == content_digest(TWO)
    assert pushing.add(ID, "b", TWO) == content_digest(TWO)
    assert len(spy.calls["put_object"]) == 1
    assert store.models(ID) == {"a": content_digest(ONE), "b": content_digest(TWO)}


def test_other_content_under_a_name_is_refused(store: ModelStore) -> None:
    """Other content under an existing name is rejected with the fix to deploy."""
    with refused("archive-unchangeable"):
        store.add(ID, "a", TWO)
    assert store.models(ID) == {"a": content_digest(ONE)}


def test_removed_name_comes_back_only_with_the_same_content(store: ModelStore) -> None:
    """A removed name is accepted again only with the same content."""
    store.put(ID, "b", TWO)
    store.remove(ID, {"a": content_digest(ONE)})
    assert store.models(ID) == {"b": content_digest(TWO)}
    with refused("archive-unchangeable"):
        store.add(ID, "a", TWO)
    store.add(ID, "a", ONE)
    assert store.models(ID) == {"a": content_digest(ONE), "b": content_digest(TWO)}


def test_adding_to_no_generation_is_refused(store: ModelStore) -> None:
    """A push is rejected if no generation exists, because nothing was deployed."""
    with refused("generation-missing"):
        store.add("f" * 12, "a", ONE)


def test_adding_an_illegal_name_is_refused(store: ModelStore) -> None:
    """A name that leaves its generation is rejected."""
    with refused("model-name"):
        store.add(ID, "../x", ONE)


def test_deleted_generation_leaves_only_what_others_put_there(
    store: ModelStore, s3: S3Client, keys: Callable[[], set[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Deleting a generation deletes archives, pushed models and marks, and logs objects of others that stay."""
    store.add(ID, "pushed", TWO)
    store.remove(ID, {"a": content_digest(ONE)})
    for name in ("theirs.tar.gz", "notes.txt", "deeper/a.tar.gz"):
        s3.put_object(Bucket="models", Key=f"encoders/{ID}/{name}", Body=b"")
    with caplog.at_level(logging.WARNING):
        store.delete(ID)
    assert keys() == {f"encoders/{ID}/{name}" for name in ("theirs.tar.gz", "notes.txt", "deeper/a.tar.gz")}
    assert caplog.text.count("not written by lmi-cohost") == 3


def test_note_of_a_removal_comes_before_the_removal(store: ModelStore, spy: Spy, keys: Callable[[], set[str]]) -> None:
    """The tombstone is written before the archive is deleted."""
    spy.fail("delete_objects", 1)
    with pytest.raises(ArtifactError):
        ModelStore(spy, "models", "encoders/").remove(ID, {"a": content_digest(ONE)})  # type: ignore[arg-type]
    assert f"encoders/removed/{ID}/a/{content_digest(ONE)}" in keys()
    assert store.models(ID) == {"a": content_digest(ONE)}


def test_taking_back_leaves_what_was_not_put(store: ModelStore, s3: S3Client) -> None:
    """Undoing does not delete other content or objects of others."""
    s3.put_object(Bucket="models", Key=f"encoders/{ID}/theirs.tar.gz", Body=b"")
    store.put(ID, "b", TWO)
    store.take_back(ID, {"a": "other", "b": content_digest(TWO), "theirs": content_digest(TWO), "never": "x"})
    assert store.models(ID) == {"a": content_digest(ONE)}
    s3.head_object(Bucket="models", Key=f"encoders/{ID}/theirs.tar.gz")


def test_taking_back_asks_only_for_what_is_listed(store: ModelStore, spy: Spy) -> None:
    """Undoing requests only listed keys, because a missing key may give 403."""
    ours = ModelStore(spy, "models", "encoders/")  # type: ignore[arg-type]
    ours.take_back(ID, {"a": content_digest(ONE), "never": "x"})
    assert [call["Key"] for call in spy.calls["head_object"]] == [f"encoders/{ID}/a.tar.gz"]
    assert store.models(ID) == {}


def test_unfinished_generations_are_known(store: ModelStore) -> None:
    """A started generation is listed as unfinished until it is finished or deleted."""
    store.begin(ID)
    store.begin("f" * 12)
    assert store.unfinished() == (ID, "f" * 12)
    store.finish(ID)
    store.delete("f" * 12)
    assert store.unfinished() == ()
