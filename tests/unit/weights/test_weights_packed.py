"""Archives with weights: pushed once as the beginning of an archive, composed inside S3."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from weights_models import BUCKET, MIB, REVISION, Requests, entry_of, safetensors

from cohost.archives import compose
from cohost.archives.archive import content_digest
from cohost.archives.bucket import DIGEST
from cohost.archives.compose import ComposingBucket
from cohost.archives.errors import OccupiedError
from cohost.archives.packed import packed_revisions, with_part
from cohost.archives.verify import verify
from cohost.catalog.serving import files_of, properties_of
from cohost.errors import WeightsError
from cohost.hardware.images import parse_image
from cohost.weights.prune import check_bundled
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

    from cohost.weights.push import Pusher

    MakePusher = Callable[..., Pusher]

IMAGE = parse_image("djl-inference:0.36.0-lmi26.0.0-cu130")
KEY = "models/0123456789ab/nli.tar.gz"


def packed(**settings: Any) -> Any:
    """Return the entry of a model with `weights: archive`."""
    return entry_of(weights="archive", **settings)


def composed(s3: S3Client, entry: Any, key: str = KEY) -> bytes:
    """The archive that a deploy publishes for an entry."""
    files = files_of(entry, IMAGE, BUCKET)
    ComposingBucket(s3, BUCKET, lambda: None).put_composed(key, files, content_digest(files))
    return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def members(archive: bytes) -> dict[str, bytes]:
    """The files in an archive."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def small(model: Path) -> None:
    """Make the model's weights smaller than the least part of an upload."""
    (model / "model.safetensors").write_bytes(safetensors(1000))


def test_properties_say_nothing_of_where_weights_are() -> None:
    """Packed properties have no model id, so the server looks for weights beside them."""
    assert {"option.model_id", "option.revision"} & properties_of(packed()).keys() == set()


@pytest.mark.process
@pytest.mark.parametrize("shrink", [False, True])
def test_archive_is_whole(shrink: bool, pusher: MakePusher, model: Path, s3: S3Client, tmp_path: Path) -> None:  # noqa: FBT001
    """An archive with weights is one gzip stream that Python, gzip and tar read, and passes `cohost verify`."""
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text("{}")
    if shrink:
        small(model)
    pusher().push("nli", packed())

    archive = composed(s3, packed())

    names = ("config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json")
    found = members(archive)
    assert found.pop("serving.properties").startswith(b"engine=Python\n")
    assert found == {name: (model / name).read_bytes() for name in names}
    path = tmp_path / "nli.tar.gz"
    path.write_bytes(archive)
    subprocess.run(["gzip", "--test", path], check=True)  # noqa: S607
    listed = subprocess.run(["tar", "-tzf", path], check=True, capture_output=True, text=True)  # noqa: S607
    assert set(listed.stdout.split()) == {*names, "serving.properties"}
    assert verify(path) == []


def test_weights_are_copied_by_s3(pusher: MakePusher, s3: S3Client, requests: Requests) -> None:
    """Publishing an archive with weights downloads no weights and uploads only the small files."""
    pusher().push("nli", packed())
    requests.go_on()
    composed(s3, packed())
    assert requests.counts["UploadPartCopy"] == 1
    assert requests.counts["UploadPart"] == 1
    # The test's own look at the outcome.
    assert requests.counts["GetObject"] == 1


def test_large_weights_are_copied_in_pieces(
    pusher: MakePusher, model: Path, s3: S3Client, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 copies 5 GiB at a time at most; no piece is smaller than the least part."""
    (model / "model.safetensors").write_bytes(safetensors(16 * MIB))
    pusher().push("nli", packed())
    requests.go_on()
    monkeypatch.setattr(compose, "COPY_BYTES", 5 * MIB)
    archive = composed(s3, packed())
    assert requests.counts["UploadPartCopy"] == 3
    assert members(archive)["model.safetensors"] == safetensors(16 * MIB)


def test_changed_setting_sends_no_weights(pusher: MakePusher, s3: S3Client, requests: Requests) -> None:
    """A changed setting makes a new archive with the same stored weights, and needs no push."""
    pusher().push("nli", packed())
    before = composed(s3, packed())
    requests.go_on()
    assert pusher().push("nli", packed(batch_size=8)).sent == 0
    after = composed(s3, packed(batch_size=8), "models/ba9876543210/nli.tar.gz")
    assert b"batch_size=8" in members(after)["serving.properties"]
    assert members(after)["model.safetensors"] == members(before)["model.safetensors"]
    digests = [
        s3.head_object(Bucket=BUCKET, Key=key)["Metadata"][DIGEST] for key in (KEY, "models/ba9876543210/nli.tar.gz")
    ]
    assert digests[0] != digests[1]


def test_archive_never_changes_under_its_key(pusher: MakePusher, s3: S3Client) -> None:
    """An archive can be written again with the same content, and is rejected with other content."""
    pusher().push("nli", packed())
    before = composed(s3, packed())
    assert composed(s3, packed()) == before
    with pytest.raises(OccupiedError):
        composed(s3, packed(batch_size=8))


def test_failed_composition_leaves_no_parts(pusher: MakePusher, s3: S3Client, requests: Requests) -> None:
    """A failed composition aborts its upload, whose parts would bill."""
    pusher().push("nli", packed())
    requests.stop("CompleteMultipartUpload", 1)
    with pytest.raises(KeyboardInterrupt):
        composed(s3, packed())
    requests.go_on()
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_interrupted_push_of_a_part_goes_on(pusher: MakePusher, s3: S3Client, requests: Requests) -> None:
    """A continued push makes the same bytes again, so parts that arrived are not sent twice."""
    requests.stop("UploadPart", 2)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", packed())
    assert not WeightsStore(s3, BUCKET).revisions()[0].whole
    requests.go_on()
    pusher().push("nli", packed())
    assert requests.counts["UploadPart"] == 1
    assert members(composed(s3, packed()))["model.safetensors"] == safetensors(6 * MIB)


def begin_another(pusher: MakePusher, model: Path, requests: Requests) -> None:
    """Interrupt the push of a part, and change the model before the next attempt."""
    requests.stop("CompleteMultipartUpload", 1)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", packed())
    requests.go_on()
    (model / "model.safetensors").write_bytes(safetensors(6 * MIB, b"x"))


def test_part_that_changed_before_it_was_whole_makes_a_right_archive(
    pusher: MakePusher, model: Path, s3: S3Client, requests: Requests
) -> None:
    """A resumed push of changed content makes an archive with a correct checksum."""
    begin_another(pusher, model, requests)
    pusher().push("nli", packed())
    # To the end, which tarfile does not read and where the checksum stands.
    assert safetensors(6 * MIB, b"x") in gzip.decompress(composed(s3, packed()))


def test_interrupted_change_of_a_part_leaves_none(
    pusher: MakePusher, model: Path, s3: S3Client, requests: Requests
) -> None:
    """An interrupted change of packed weights leaves no object and no upload."""
    begin_another(pusher, model, requests)
    requests.stop("CreateMultipartUpload", 1)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", packed())
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)
    requests.go_on()
    pusher().push("nli", packed())
    assert members(composed(s3, packed()))["model.safetensors"] == safetensors(6 * MIB, b"x")


def test_part_of_other_files_is_refused(pusher: MakePusher, model: Path, s3: S3Client) -> None:
    """A push of other files under a stored revision is rejected."""
    pusher().push("nli", packed())
    small(model)
    with refused("weights-changed", f"s3://{BUCKET}/{REVISION.packed}", kind=WeightsError):
        pusher().push("nli", packed())
    assert members(composed(s3, packed()))["model.safetensors"] == safetensors(6 * MIB)


def test_part_is_listed_and_removed_with_its_revision(pusher: MakePusher, s3: S3Client) -> None:
    """Packed weights are listed when complete, and removed with their revision."""
    pusher().push("nli", packed())
    store = WeightsStore(s3, BUCKET)
    (stored,) = store.revisions()
    assert (stored.revision, stored.whole) == (REVISION, True)
    store.delete(stored)
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)


def test_object_that_is_no_part_is_refused(s3: S3Client) -> None:
    """An object that is no packed weights makes no archive."""
    s3.put_object(Bucket=BUCKET, Key=REVISION.packed, Body=gzip.compress(b"x"))
    with refused("weights-part-foreign"):
        composed(s3, packed())


def test_properties_of_the_resource_are_checked() -> None:
    """The property PackedWeights must fit the models of the same event."""
    models = {"nli": {"engine": "Python"}}
    assert packed_revisions({"Models": models, "PackedWeights": {"nli": str(REVISION)}}) == {"nli": REVISION}
    for wrong in ({"nli": "org/nli"}, {"other": str(REVISION)}, "nli"):
        with refused("packed-weights", "PackedWeights"):
            packed_revisions({"Models": models, "PackedWeights": wrong})


def test_revision_is_content() -> None:
    """Another revision of the weights makes another archive and so another generation."""
    files = {"serving.properties": b"engine=Python\n"}
    digests = {
        content_digest(with_part(files, revision, BUCKET))
        for revision in (REVISION, type(REVISION)("org/nli", "b" * 40))
    }
    assert len({content_digest(files), *digests}) == 3


def test_bundle_says_where_such_archives_come_from() -> None:
    """The command would have to fetch the weights first."""
    with refused("weights-in-archive", "models.nli.weights", kind=WeightsError):
        check_bundled("nli", packed())
    check_bundled("nli", entry_of())


def test_checksums_that_s3_tells_are_told_back(pusher: MakePusher, s3: S3Client) -> None:
    """S3 ends an upload with checksums only for a request that names each part's."""
    pusher().push("nli", packed())
    told: list[dict[str, Any]] = []
    s3.meta.events.register(
        "after-call.s3.UploadPartCopy", lambda parsed, **_: parsed["CopyPartResult"].update(ChecksumSHA256="copied")
    )
    s3.meta.events.register("after-call.s3.UploadPart", lambda parsed, **_: parsed.update(ChecksumSHA256="sent"))

    def look(params: dict[str, Any], **_: object) -> None:
        told.extend(params["MultipartUpload"]["Parts"])

    s3.meta.events.register("provide-client-params.s3.CompleteMultipartUpload", look)
    composed(s3, packed())
    assert [part["ChecksumSHA256"] for part in told] == ["copied", "sent"]
