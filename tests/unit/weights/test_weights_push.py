"""A push of a model's weights to S3: once, complete or not at all, resumed after an interruption."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from weights_models import BUCKET, CONFIG, MIB, REVISION, Requests, Steps, entry_of, safetensors

from cohost.errors import WeightsError
from cohost.weights.files import FaultyModelError
from cohost.weights.push import Pusher
from cohost.weights.source import Folders
from cohost.weights.store import WeightsStore
from cohost.weights.upload import encoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

    from cohost.archives.weights import Revision

    MakePusher = Callable[..., Pusher]
    Keys = Callable[[], set[str]]

WEIGHTS = REVISION.prefix + "model.safetensors"
FILES = {REVISION.prefix + name for name in ("config.json", "model.safetensors", "tokenizer.json")}


def content(s3: S3Client, key: str) -> bytes:
    """An object's bytes."""
    return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def test_push_uploads_what_is_served(pusher: MakePusher, model: Path, s3: S3Client, keys: Keys) -> None:
    """A push uploads all files that the container needs unchanged below the revision, and then the manifest."""
    pushed = pusher().push("nli", entry_of())
    assert keys() == FILES | {REVISION.manifest}
    assert content(s3, WEIGHTS) == (model / "model.safetensors").read_bytes()
    assert pushed.uri == f"s3://{BUCKET}/weights/org/nli/{'a' * 40}/"
    assert pushed.sent == pushed.size == sum((model / key.rpartition("/")[2]).stat().st_size for key in FILES)


def test_s3_keeps_a_checksum_of_every_file(pusher: MakePusher, s3: S3Client) -> None:
    """S3 stores a SHA-256 for each object."""
    pusher().push("nli", entry_of())
    for key in FILES:
        assert s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")["ChecksumSHA256"]


def test_second_push_sends_nothing(pusher: MakePusher, requests: Requests) -> None:
    """A second push writes nothing, not even the manifest."""
    pusher().push("nli", entry_of())
    requests.go_on()
    pushed = pusher().push("nli", entry_of())
    assert pushed.sent == 0
    assert {"PutObject", "UploadPart", "CreateMultipartUpload"} & requests.counts.keys() == set()


def test_interrupted_push_goes_on(pusher: MakePusher, model: Path, s3: S3Client, requests: Requests) -> None:
    """Parts that arrived before the interruption are not sent again, and the file is whole in the end."""
    requests.stop("UploadPart", 2)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", entry_of())
    (upload,) = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    there = s3.list_parts(Bucket=BUCKET, Key=WEIGHTS, UploadId=upload["UploadId"])["Parts"]
    assert len(there) == 1
    requests.go_on()

    pushed = pusher().push("nli", entry_of())

    assert requests.counts["UploadPart"] == 1
    assert requests.counts["CreateMultipartUpload"] == 0
    weights = (model / "model.safetensors").read_bytes()
    assert pushed.sent == len(weights) - there[0]["Size"] + (model / "tokenizer.json").stat().st_size
    assert content(s3, WEIGHTS) == weights
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def push_half(pusher: MakePusher, requests: Requests) -> None:
    """Stop a push after its parts, before S3 joins them."""
    requests.stop("CompleteMultipartUpload", 1)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", entry_of())
    requests.go_on()


def test_half_an_upload_is_not_taken_for_whole(pusher: MakePusher, s3: S3Client, requests: Requests) -> None:
    """A revision is complete only with its manifest, which is written last."""
    push_half(pusher, requests)
    store = WeightsStore(s3, BUCKET)
    assert store.manifest(REVISION) is None
    (stored,) = store.revisions()
    assert (stored.whole, len(stored.uploads)) == (False, 1)


def test_parts_of_other_content_are_sent_again(
    pusher: MakePusher, model: Path, s3: S3Client, requests: Requests
) -> None:
    """Parts are compared by checksum, so a changed file is sent again.

    The changed part is sent, and then both once more: the upload has the metadata of the content that it began with.
    """
    push_half(pusher, requests)
    changed = bytearray(safetensors(6 * MIB))
    changed[11 * MIB // 2] = 0
    (model / "model.safetensors").write_bytes(changed)

    pusher().push("nli", entry_of())

    assert requests.counts["UploadPart"] == 1 + 2
    assert content(s3, WEIGHTS) == changed


def test_resumed_upload_of_other_content_says_what_it_holds(
    pusher: MakePusher, model: Path, s3: S3Client, requests: Requests
) -> None:
    """Content that changed since the start of an upload is stored with its own SHA-256 as metadata."""
    push_half(pusher, requests)
    changed = safetensors(6 * MIB, b"x")
    (model / "model.safetensors").write_bytes(changed)

    pusher().push("nli", entry_of())

    assert content(s3, WEIGHTS) == changed
    noted = s3.head_object(Bucket=BUCKET, Key=WEIGHTS)["Metadata"]["cohost-sha256"]
    assert noted == hashlib.sha256(changed).hexdigest()
    assert pusher().push("nli", entry_of()).sent == 0
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_leftovers_of_an_earlier_attempt_go(pusher: MakePusher, s3: S3Client, keys: Keys) -> None:
    """Other objects below the prefix are deleted, because the container fetches all of them."""
    s3.put_object(Bucket=BUCKET, Key=REVISION.prefix + "old.json", Body=b"{}")
    pusher().push("nli", entry_of())
    assert keys() == FILES | {REVISION.manifest}


def test_whole_revision_is_never_changed(pusher: MakePusher, model: Path, s3: S3Client, requests: Requests) -> None:
    """A push of other content under a stored revision is rejected before an upload."""
    pusher().push("nli", entry_of())
    before = content(s3, WEIGHTS)
    (model / "model.safetensors").write_bytes(safetensors(6 * MIB, b"x"))
    requests.go_on()
    with refused("weights-changed", REVISION.uri(BUCKET), kind=WeightsError) as caught:
        pusher().push("nli", entry_of())
    assert "model.safetensors" in caught.value.problem
    assert requests.counts["UploadPart"] == 0
    assert content(s3, WEIGHTS) == before


def test_lost_file_of_a_whole_revision_is_sent_again(pusher: MakePusher, s3: S3Client, keys: Keys) -> None:
    """If an object of a stored revision was deleted, a push uploads the same content again."""
    pusher().push("nli", entry_of())
    s3.delete_object(Bucket=BUCKET, Key=REVISION.prefix + "config.json")
    assert pusher().push("nli", entry_of()).sent == len(json.dumps(CONFIG))
    assert keys() == FILES | {REVISION.manifest}


def test_new_revision_lies_beside_the_old_one(pusher: MakePusher, keys: Keys) -> None:
    """A new revision is stored beside the old one, which archives still use."""
    pusher().push("nli", entry_of())
    pusher().push("nli", entry_of(revision="b" * 40))
    assert {key.split("/")[-2] for key in keys() if key.startswith("weights/")} == {"a" * 40, "b" * 40}


def test_links_are_followed(pusher: MakePusher, model: Path, tmp_path: Path, s3: S3Client) -> None:
    """Symbolic links, as in a Hub cache, are uploaded as files."""
    blob = tmp_path / "blob"
    (model / "model.safetensors").rename(blob)
    (model / "model.safetensors").symlink_to(blob)
    pusher().push("nli", entry_of())
    assert content(s3, WEIGHTS) == blob.read_bytes()


def test_model_with_faults_is_not_uploaded(pusher: MakePusher, model: Path, keys: Keys) -> None:
    """All faults of a model are reported together, each with its fix, before an upload."""
    (model / "tokenizer.json").unlink()
    (model / "model.safetensors").write_bytes(safetensors(6 * MIB)[:-1])
    with pytest.raises(FaultyModelError) as caught:
        pusher().push("nli", entry_of())
    faults = caught.value.entries()
    assert [fault["code"] for fault in faults] == ["no-tokenizer", "incomplete-weights"]
    assert {fault["field"] for fault in faults} == {f"models.nli: {REVISION}"}
    assert str(caught.value).splitlines() == [fault["message"] for fault in faults]
    assert keys() == set()


def test_entry_with_weights_from_the_hub_is_refused(pusher: MakePusher) -> None:
    """A push of a model whose weights come from the Hub is rejected, because nothing would read the upload."""
    with refused("weights-on-hub", "models.nli.weights", kind=WeightsError):
        pusher().push("nli", entry_of(weights="hub"))


def test_progress_adds_up(pusher: MakePusher, requests: Requests) -> None:
    """Each step of the progress reaches its total, even if some parts were stored already."""
    requests.stop("UploadPart", 2)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", entry_of())
    requests.go_on()
    steps = Steps()
    pusher(steps).push("nli", entry_of())
    assert steps.names == ["nli: fetching", "nli: checksums", "nli: uploading"]
    assert steps.counts == steps.totals


def test_missing_bucket_says_how_to_get_one(pusher: MakePusher, s3: S3Client) -> None:
    """A missing bucket is an error with the stack to deploy, or with the user's own bucket to create."""
    s3.delete_bucket(Bucket=BUCKET)
    with refused("weights-store-missing", kind=WeightsError) as caught:
        pusher().push("nli", entry_of())
    assert caught.value.fix.startswith("make the bucket, or leave storage.weights_bucket out")
    ours = WeightsStore(s3, "lmi-cohost-weights-123456789012-us-east-1")
    with refused("weights-store-missing", kind=WeightsError) as caught:
        ours.manifest(REVISION)
    assert caught.value.fix.startswith("run `cdk deploy LmiCohostWeightsStack`")


def test_folder_must_hold_the_revision(pusher: MakePusher, model: Path, tmp_path: Path) -> None:
    """A folder must have the pinned commit in REVISION, and the error names the searched folders."""
    (model / "REVISION").write_text("b" * 40)
    with refused("revision-other", "--from", kind=WeightsError):
        pusher().push("nli", entry_of())
    with refused("model-missing", "--from", kind=WeightsError):
        pusher(None, (tmp_path / "empty",)).push("nli", entry_of())


class Commits:
    """Models that never change, as on the Hub, with a count of their fetches."""

    immutable = True

    def __init__(self, root: Path) -> None:
        self.fetched = 0
        self._folders = Folders([root])

    def fetch(self, revision: Revision, *, allow_pickle: bool, with_code: bool) -> Path:
        """The model's folder."""
        self.fetched += 1
        return self._folders.fetch(revision, allow_pickle=allow_pickle, with_code=with_code)


@pytest.mark.parametrize("weights", ["s3", "archive"])
@pytest.mark.parametrize("settings", [{}, {"trust_remote_code": True}])
def test_what_is_there_of_a_commit_is_not_fetched_again(
    settings: dict[str, bool], weights: str, model: Path, s3: S3Client
) -> None:
    """A stored commit with the same settings is not fetched again."""
    (model / "modeling.py").write_text("ANSWER = 42")
    commits = Commits(model.parent.parent)
    pusher, entry = Pusher(WeightsStore(s3, BUCKET), commits, Steps()), entry_of(weights=weights, **settings)
    pusher.push("nli", entry)
    assert pusher.push("nli", entry).sent == 0
    assert commits.fetched == 1


@pytest.mark.parametrize("weights", ["s3", "archive"])
def test_settings_that_choose_other_files_of_a_commit_are_noticed(weights: str, model: Path, s3: S3Client) -> None:
    """A push after trust_remote_code was set is rejected, because the stored revision lacks the code."""
    (model / "modeling.py").write_text("ANSWER = 42")
    pusher = Pusher(WeightsStore(s3, BUCKET), Commits(model.parent.parent), Steps())
    pusher.push("nli", entry_of(weights=weights))
    with refused("weights-changed", kind=WeightsError):
        pusher.push("nli", entry_of(weights=weights, trust_remote_code=True))


@pytest.mark.parametrize("weights", ["s3", "archive"])
def test_pickles_that_are_there_are_refused_where_they_are_not_allowed(weights: str, model: Path, s3: S3Client) -> None:
    """A push after allow_pickle was removed is rejected, although the pickles are stored."""
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    pusher = Pusher(WeightsStore(s3, BUCKET), Commits(model.parent.parent), Steps())
    pusher.push("nli", entry_of(weights=weights, allow_pickle=True))
    with refused("pickle", kind=WeightsError):
        pusher.push("nli", entry_of(weights=weights))


@pytest.mark.parametrize(("listed", "sent"), [("right", 1), ("wrong", 2)])
def test_parts_are_compared_by_the_checksum_that_s3_lists(
    listed: str, sent: int, pusher: MakePusher, model: Path, s3: S3Client, requests: Requests
) -> None:
    """Parts are compared by the listed checksum, because the ETag is no MD5 with a KMS key."""
    requests.stop("UploadPart", 2)
    with pytest.raises(KeyboardInterrupt):
        pusher().push("nli", entry_of())
    requests.go_on()
    content = (model / "model.safetensors").read_bytes()

    def tell(parsed: dict[str, Any], **_: object) -> None:
        for part in parsed["Parts"]:
            start = (part["PartNumber"] - 1) * 5 * MIB
            digest = encoded(hashlib.sha256(content[start : start + 5 * MIB]).digest())
            part["ChecksumSHA256"] = digest if listed == "right" else "other"

    s3.meta.events.register("after-call.s3.ListParts", tell)
    pusher().push("nli", entry_of())
    assert requests.counts["UploadPart"] == sent
