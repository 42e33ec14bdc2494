"""The single archive of all models: its content, its generations, and the models that are never published."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused

from cohost.archives.archive import bundle_files, content_digest, digest, pack, server_name
from cohost.archives.generation import Generation
from cohost.archives.packed import with_part
from cohost.archives.request import archives_of
from cohost.archives.store import ModelStore
from cohost.archives.verify import startup_faults, verify_bundle
from cohost.archives.weights import Revision

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import CloudFormation, Spy

    Send = Callable[..., dict[str, Any]]
    Keys = Callable[[], set[str]]

A = {"a": {"engine": "Python", "option.model_id": "org/a"}}
AB = {**A, "b": {"engine": "Python", "option.model_id": "org/b"}}
CHANGED = {"a": {"engine": "Python", "option.model_id": "org/a", "batch_size": "8"}}
MODELS = {"b": {"model.py": b"code", "serving.properties": b"x=1\n"}, "a": {"serving.properties": b"x=2\n"}}


def event(
    cloudformation: CloudFormation, kind: str, models: dict[str, Any], *, old: Any = None, at: str = "", **changed: Any
) -> dict[str, Any]:
    """Return an event for a model store with layout bundle, with `OldLayout` if `changed`."""
    built = cloudformation.event(kind, models, old=old)
    built["ResourceProperties"] |= {"Layout": changed.get("Layout", "bundle")}
    if old is not None:
        built["OldResourceProperties"] |= {"Layout": changed.get("OldLayout", "bundle")}
    return built | ({"PhysicalResourceId": at} if at else {})


def test_each_model_is_a_folder_and_nothing_else_lies_at_the_root() -> None:
    """A bundle has one folder per model and no file at its root, which would be taken for a model."""
    with tarfile.open(fileobj=io.BytesIO(pack(bundle_files(MODELS)))) as tar:
        names = tar.getnames()

    assert names == ["a/serving.properties", "b/model.py", "b/serving.properties"]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("xlmr-large", "xlmr_large"), ("a.b", "a_b"), ("a b", "a_b"), ("-x", "_x"), ("x--y", "x__y"), ("한글", "__")),
        *(("_x", "_x"), ("Ab", "Ab"), ("1m", "1m"), ("plain", "plain")),
    ],
)
def test_server_names_are_the_recorded_ones(folder: str, name: str) -> None:
    """The server's name of each model is the recorded one (29)."""
    assert server_name(folder) == name


def test_folders_have_the_names_that_the_server_will_use() -> None:
    """Archive, log and the server's list of models name a model alike."""
    assert list(bundle_files({"xlmr-large": MODELS["a"]})) == ["xlmr_large/serving.properties"]


def test_models_that_the_server_would_name_alike_are_not_bundled() -> None:
    """Two models whose names become equal in the server are rejected, with both names."""
    with refused("model-name-collides", "models.a_b"):
        bundle_files({"a-b": MODELS["a"], "a_b": MODELS["a"]})


def test_same_models_give_the_same_bytes_in_whatever_order() -> None:
    """The same models in any order give the same bundle."""
    turned = {name: dict(reversed(files.items())) for name, files in reversed(MODELS.items())}

    assert pack(bundle_files(turned)) == pack(bundle_files(MODELS))


def test_digest_is_that_of_the_members_and_says_that_it_is_a_bundle() -> None:
    """The digest of a bundle can be computed from the archive alone, and differs from any single model's digest."""
    files = bundle_files(MODELS)

    assert digest(pack(files)) == content_digest(files)
    assert content_digest(files).startswith("bundle-")
    assert not content_digest(MODELS["a"]).startswith("bundle-")


def test_file_cannot_move_from_one_model_to_another_unnoticed() -> None:
    """The digest of a bundle includes each file's folder."""
    digests = {content_digest(files) for files in ({"a/b": b""}, {"b/a": b""}, {"ab/c": b""}, {"a/bc": b""})}

    assert len(digests) == 4


@pytest.mark.process
def test_create_publishes_one_archive_and_tells_its_address(
    send: Send, cloudformation: CloudFormation, keys: Keys, s3: S3Client
) -> None:
    """A Create event publishes one archive; ModelDataUrl is its address, and the physical id the generation."""
    answer = send(event(cloudformation, "Create", AB))

    generation = answer["Data"]["Generation"]
    key = f"encoders/{generation}/models.tar.gz"
    assert answer["PhysicalResourceId"] == f"s3://models/encoders/{generation}/"
    assert answer["Data"]["ModelDataUrl"] == f"s3://models/{key}"
    assert keys() == {key}
    with tarfile.open(fileobj=io.BytesIO(s3.get_object(Bucket="models", Key=key)["Body"].read())) as tar:
        assert tar.getnames() == ["a/serving.properties", "b/serving.properties"]


@pytest.mark.process
def test_repeated_create_finds_its_own_work(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A repeated Create event gets the same answer as the first, whose answer was lost."""
    first = send(event(cloudformation, "Create", AB))
    before = keys()

    assert send(event(cloudformation, "Create", AB)) == first
    assert keys() == before


@pytest.mark.process
@pytest.mark.parametrize("models", [CHANGED, AB, {"c": A["a"]}], ids=["changed", "added", "renamed"])
def test_any_other_set_of_models_is_another_generation(
    send: Send, cloudformation: CloudFormation, keys: Keys, models: dict[str, Any]
) -> None:
    """Another set of models makes another generation, because a bundle is never overwritten."""
    first = send(event(cloudformation, "Create", A))["PhysicalResourceId"]

    second = send(event(cloudformation, "Update", models, old=A, at=first))["PhysicalResourceId"]

    assert second != first
    assert keys() == {f"{uri.removeprefix('s3://models/')}models.tar.gz" for uri in (first, second)}


@pytest.mark.process
def test_removed_model_is_another_generation(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A bundle without a removed model is another generation; the old one stays until its Delete."""
    first = send(event(cloudformation, "Create", AB))["PhysicalResourceId"]
    second = send(event(cloudformation, "Update", A, old=AB, at=first))["PhysicalResourceId"]
    assert second != first

    assert send(event(cloudformation, "Delete", AB, at=first))["Status"] == "SUCCESS"

    assert keys() == {f"{second.removeprefix('s3://models/')}models.tar.gz"}


@pytest.mark.process
def test_rolled_back_update_comes_back_to_the_bundle_it_left(
    send: Send, cloudformation: CloudFormation, keys: Keys
) -> None:
    """A rolled back update returns to the old bundle, and the Delete of the new one follows."""
    old = send(event(cloudformation, "Create", A))["PhysicalResourceId"]
    before = keys()
    new = send(event(cloudformation, "Update", AB, old=A, at=old))["PhysicalResourceId"]

    assert send(event(cloudformation, "Update", A, old=AB, at=new))["PhysicalResourceId"] == old
    send(event(cloudformation, "Delete", AB, at=new))

    assert keys() == before


@pytest.mark.process
def test_failed_update_leaves_no_trace(send: Send, cloudformation: CloudFormation, spy: Spy, keys: Keys) -> None:
    """The objects that a failed update wrote are deleted, and the resource keeps its old physical id."""
    old = send(event(cloudformation, "Create", A))["PhysicalResourceId"]
    before = keys()
    spy.fail("put_object", 2)

    answer = send(event(cloudformation, "Update", AB, old=A, at=old))

    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", old)
    assert keys() == before


@pytest.mark.process
@pytest.mark.parametrize(("before", "after"), [("archives", "bundle"), ("bundle", "archives")])
def test_other_layout_is_another_generation_and_leaves_the_old_one_whole(
    send: Send, cloudformation: CloudFormation, keys: Keys, before: str, after: str
) -> None:
    """Another layout makes another generation, and the archives of the old layout stay for a rollback."""
    first = send(event(cloudformation, "Create", AB, Layout=before))["PhysicalResourceId"]
    served = keys()

    second = send(event(cloudformation, "Update", AB, old=AB, at=first, OldLayout=before, Layout=after))

    assert second["PhysicalResourceId"] != first
    assert served < keys()
    back = send(
        event(cloudformation, "Update", AB, old=AB, at=second["PhysicalResourceId"], OldLayout=after, Layout=before)
    )
    assert back["PhysicalResourceId"] == first


@pytest.mark.process
def test_archives_with_a_model_named_models_are_no_bundle(
    send: Send, cloudformation: CloudFormation, keys: Keys
) -> None:
    """An archive of a model named "models" is not taken for a bundle."""
    models = {"models": A["a"]}
    first = send(event(cloudformation, "Create", models, Layout="archives"))["PhysicalResourceId"]

    second = send(event(cloudformation, "Update", models, old=models, at=first, OldLayout="archives"))

    assert second["PhysicalResourceId"] != first
    assert len(keys()) == 2


def test_generation_that_once_held_a_bundle_takes_no_archives() -> None:
    """A generation with the tombstone of a bundle is not used for single archives."""
    emptied = Generation(id="0" * 12, models={}, removed={"models": {"bundle-1"}})

    assert emptied.agrees({"models": "bundle-1"})
    assert not emptied.agrees({"a": "1"})


@pytest.mark.process
def test_model_that_could_not_start_is_not_published(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A bundle with a model that cannot start is rejected, because the model would end the server of all models."""
    faulty = {**A, "b": {"engine": "Pyton", "option.model_id": "org/b"}, "c": {"engine": "Python"}}

    answer = send(event(cloudformation, "Create", faulty))

    assert answer["Status"] == "FAILED"
    assert "models.b: engine: 'Pyton' is not allowed; allowed: " in answer["Reason"]
    assert "models.c: the archive holds no weights" in answer["Reason"]
    assert "models.a" not in answer["Reason"]
    assert keys() == set()


@pytest.mark.process
def test_single_archive_of_the_same_model_is_still_published(
    send: Send, cloudformation: CloudFormation, keys: Keys
) -> None:
    """On a multi-model endpoint such a model is published, because a model that fails there harms no other."""
    assert send(event(cloudformation, "Create", {"c": {"engine": "Python"}}, Layout="archives"))["Status"] == "SUCCESS"
    assert len(keys()) == 1


@pytest.mark.process
def test_unknown_layout_is_refused(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """An unknown layout, from a template of another version, is rejected."""
    answer = send(event(cloudformation, "Create", A, Layout="zip"))

    assert (answer["Status"], keys()) == ("FAILED", set())
    assert answer["Reason"] == "Layout: got 'zip'; allowed: archives, bundle; fix: write one of these"


def test_doubtful_settings_do_not_stop_a_bundle() -> None:
    """A bundle with warnings is published; only faults that prevent the start are rejected."""
    files = {"serving.properties": b"engine=Python\noption.model_id=org/a\n"}

    assert list(startup_faults({"a": files})) == []


def test_model_cannot_be_pushed_into_a_bundle(s3: S3Client) -> None:
    """A push to a bundle is rejected with the fix, because no container would load the archive."""
    store = ModelStore(s3, "models", "encoders/")
    store.put("0" * 12, "models", archives_of({"Layout": "bundle", "Models": A})["models"])

    with refused("archive-unchangeable"):
        store.add("0" * 12, "b", {"serving.properties": b"engine=Python\n"})


def written(tmp_path: Path, files: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return code and message of each fault of a bundle with these files."""
    path = tmp_path / "models.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return [(fault.code, fault.message) for fault in verify_bundle(path) if fault.severity == "error"]


PROPERTIES = b"engine=Python\noption.model_id=org/a\n"


def test_bundle_of_ours_has_no_fault(tmp_path: Path) -> None:
    """A published bundle of many models passes the check of bundles."""
    files = archives_of({"Layout": "bundle", "Models": {f"m{number}": A["a"] for number in range(40)}})["models"]

    assert written(tmp_path, files) == []


def test_each_model_of_a_foreign_bundle_is_checked(tmp_path: Path) -> None:
    """Each model of a bundle is checked, and a fault names its folder."""
    files = {f"m{number:02}/serving.properties": PROPERTIES for number in range(40)}
    files["z/serving.properties"] = b"engine=Pyton\noption.model_id=org/a\n"

    [(code, message)] = written(tmp_path, files)

    assert (code, message.startswith("z: engine: 'Pyton'")) == ("unknown-engine", True)


@pytest.mark.parametrize(
    ("extra", "code", "message"),
    [
        ({"README": b"x"}, "stray-file", "plain files at the root: 'README'"),
        ({"serving.properties": PROPERTIES}, "stray-file", "the server takes all folders for one model"),
        ({"b/model.py": b"x"}, "no-serving-properties", "b: there is no serving.properties"),
        (
            {"a-b/serving.properties": PROPERTIES, "a.b/serving.properties": PROPERTIES},
            "same-name",
            "the server serves the folders 'a-b', 'a.b' all as 'a_b', and ends at its start",
        ),
    ],
)
def test_folder_that_is_no_model_is_told(tmp_path: Path, extra: dict[str, bytes], code: str, message: str) -> None:
    """A stray file, a folder without properties and folders with equal names are faults of a bundle."""
    [(found, told)] = written(tmp_path, {"a/serving.properties": PROPERTIES} | extra)

    assert found == code
    assert message in told


def test_hostile_bundle_is_told_and_not_unpacked(tmp_path: Path) -> None:
    """A bundle with a path outside its folder, or without content, is rejected like a single archive."""
    assert ("parent-path", "paths with '..': 'a/../../x'; they are not extracted") in written(
        tmp_path, {"a/serving.properties": PROPERTIES, "a/../../x": b""}
    )
    (tmp_path / "models.tar.gz").write_bytes(b"")
    assert [fault.code for fault in verify_bundle(tmp_path / "models.tar.gz")] == ["empty"]


def test_archive_with_weights_of_its_own_is_no_bundle() -> None:
    """An archive into which S3 copies weights is not taken for a bundle, so the model can be added to others."""
    files = with_part({"serving.properties": PROPERTIES}, Revision("org/a", "0" * 40), "weights")

    assert not content_digest(files).startswith("bundle-")


@pytest.mark.process
def test_weights_do_not_go_into_a_bundle(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """A bundle with packed weights is rejected, because S3 can compose only archives of one model."""
    created = event(cloudformation, "Create", AB)
    created["ResourceProperties"] |= {"PackedWeights": {"b": f"org/b@{'0' * 40}"}, "WeightsBucket": "weights"}

    answer = send(created)

    assert (answer["Status"], keys()) == ("FAILED", set())
    assert answer["Reason"].startswith("PackedWeights.b: weights cannot be put into an archive of several models")
