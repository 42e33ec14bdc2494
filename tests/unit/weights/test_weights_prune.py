"""Removal of revisions that no catalog entry and no archive of any deployed stack uses."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from botocore.exceptions import ClientError
from fakes.refusals import refused
from typer.testing import CliRunner
from weights_models import BUCKET, MIB, REVISION

from cohost import cli
from cohost.archives.archive import pack
from cohost.archives.compose import WEIGHTS_OF
from cohost.archives.properties import dumps
from cohost.archives.weights import Revision
from cohost.errors import WeightsError
from cohost.weights import prune
from cohost.weights.store import WeightsStore
from cohost.weights.upload import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import boto3
    from click.testing import Result
    from mypy_boto3_s3 import S3Client

    Run = Callable[..., Result]

IMAGE = "djl-inference:0.36.0-lmi26.0.0-cu130"
LIVE, OLD, HALF = Revision("org/nli", "b" * 40), Revision("org/nli", "c" * 40), Revision("org/mini", "d" * 40)
FILE = StoredFile(size=2, sha256="0" * 64, part_bytes=16, checksum="x")


def put(s3: S3Client, revision: Revision, *, whole: bool = True) -> None:
    """A revision in the bucket."""
    s3.put_object(Bucket=BUCKET, Key=revision.prefix + "config.json", Body=b"{}")
    if whole:
        WeightsStore(s3, BUCKET).write_manifest(revision, {"config.json": FILE})


def archive(revision: Revision, folder: str = "") -> bytes:
    """Return a deployed archive whose weights are in the bucket."""
    text = dumps({"engine": "Python", "option.model_id": revision.uri(BUCKET)}).encode()
    if not folder:
        return pack({"serving.properties": text})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo(f"{folder}/serving.properties")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


def deploy(s3: S3Client, monkeypatch: pytest.MonkeyPatch, archives: dict[str, bytes]) -> None:
    """Create a stack with these archives."""
    s3.create_bucket(Bucket="archives")
    for key, data in archives.items():
        s3.put_object(Bucket="archives", Key=key, Body=data)
    outputs = {"EndpointName": "e", "BucketName": "archives", "Prefix": "models/"}
    monkeypatch.setattr(prune, "_stacks", lambda _session: iter([("LmiCohostStack", outputs)]))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command with a catalog of one model at `REVISION`."""
    path = tmp_path / "catalog.yaml"
    content: dict[str, Any] = {
        "endpoint": {"name": "e", "instance_type": "ml.g5.xlarge", "image": IMAGE},
        "storage": {"weights_bucket": BUCKET},
        "weights": "s3",
        "models": {
            "nli": {"model_id": REVISION.model_id, "revision": REVISION.revision, "task": "text-classification"}
        },
    }
    path.write_text(yaml.safe_dump(content))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli.app, ["weights", *arguments, "--catalog", str(path)], catch_exceptions=False)

    return invoke


def left(s3: S3Client) -> list[Revision]:
    """The revisions in the bucket."""
    return [stored.revision for stored in WeightsStore(s3, BUCKET).revisions()]


def test_only_what_nothing_uses_is_removed(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revisions of the catalog and of stored generations are kept, so a rollback finds its weights."""
    for revision in (REVISION, LIVE, OLD):
        put(s3, revision)
    deploy(s3, monkeypatch, {"models/0123456789ab/nli.tar.gz": archive(LIVE)})
    s3.put_object(Bucket=BUCKET, Key="weights/notes.txt", Body=b"mine")

    shown = json.loads(run("prune", "--dry-run", "--json").stdout)

    assert [one["revision"] for one in shown] == [OLD.revision]
    assert len(left(s3)) == 3
    assert json.loads(run("prune", "--json").stdout) == shown
    assert left(s3) == [REVISION, LIVE]
    assert {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]} >= {"weights/notes.txt"}
    assert json.loads(run("prune", "--json").stdout) == []


def test_archive_of_all_models_counts(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revisions that the properties of a bundle name are in use."""
    put(s3, LIVE)
    deploy(s3, monkeypatch, {"models/0123456789ab/models.tar.gz": archive(LIVE, "nli")})
    (shown,) = json.loads(run("list", "--json").stdout)
    assert shown["users"] == ["LmiCohostStack: 0123456789ab/models.tar.gz"]


def test_archive_with_weights_is_not_fetched(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that contains weights is not fetched, because it is large and uses no weights of the bucket."""
    put(s3, OLD)
    deploy(s3, monkeypatch, {})
    mark = {WEIGHTS_OF: OLD.packed}
    s3.put_object(Bucket="archives", Key="models/0123456789ab/nli.tar.gz", Body=bytes(6 * MIB), Metadata=mark)
    (shown,) = json.loads(run("list", "--json").stdout)
    assert shown["users"] == []


def test_halves_of_uploads_go(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects without a manifest and parts of an upload that never ended are removed together."""
    put(s3, HALF, whole=False)
    s3.create_multipart_upload(Bucket=BUCKET, Key=HALF.prefix + "model.safetensors")
    deploy(s3, monkeypatch, {})
    assert run("list").stdout.count("unfinished") == 1
    run("prune")
    assert left(s3) == []
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_all_spares_what_is_deployed(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cohost weights prune --all` removes all revisions except those that a deployed stack uses."""
    for revision in (REVISION, LIVE):
        put(s3, revision)
    deploy(s3, monkeypatch, {"models/0123456789ab/nli.tar.gz": archive(LIVE)})
    run("prune", "--all")
    assert left(s3) == [LIVE]


def test_list_says_who_uses_what(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cohost weights list` names the models and archives that use each revision."""
    put(s3, REVISION)
    deploy(s3, monkeypatch, {"models/0123456789ab/nli.tar.gz": archive(REVISION)})
    (shown,) = json.loads(run("list", "--json").stdout)
    assert shown["users"] == ["catalog: nli", "LmiCohostStack: 0123456789ab/nli.tar.gz"]
    assert (shown["whole"], shown["uri"], shown["size"]) == (True, REVISION.uri(BUCKET), 2)


def test_nothing_is_unused_where_stacks_cannot_be_read(run: Run, s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the stacks cannot be read, `cohost weights prune` removes nothing."""
    put(s3, OLD)

    def refuse(_session: boto3.Session) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeStacks")

    monkeypatch.setattr(prune, "_stacks", refuse)
    with refused("archives-unreadable", kind=WeightsError):
        run("prune")
    assert left(s3) == [OLD]


def test_manifest_goes_first(s3: S3Client) -> None:
    """The manifest is deleted first, so an interrupted removal leaves no complete revision."""
    put(s3, OLD)
    store = WeightsStore(s3, BUCKET)
    (stored,) = store.revisions()

    def interrupt(model: Any, **_: object) -> None:
        if model.name == "DeleteObjects":
            raise KeyboardInterrupt

    s3.meta.events.register("before-call.s3", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.delete(stored)
    assert store.manifest(OLD) is None
    assert not store.revisions()[0].whole


def test_object_that_cannot_be_removed_is_named(s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that S3 reports as not deleted is named."""
    answer = {"Errors": [{"Key": "weights/b", "Code": "AccessDenied", "Message": "no"}]}
    monkeypatch.setattr(s3, "delete_objects", lambda **_: answer)
    with refused("weights-store-denied", f"s3://{BUCKET}/weights/b", kind=WeightsError):
        WeightsStore(s3, BUCKET).delete_keys(["weights/a", "weights/b"])


def test_manifest_that_cannot_be_read_is_told(s3: S3Client) -> None:
    """The error for a manifest that cannot be read names its key in S3."""
    s3.put_object(Bucket=BUCKET, Key=OLD.manifest, Body=b"[]")
    with refused("manifest-invalid", f"s3://{BUCKET}/{OLD.manifest}", kind=WeightsError):
        WeightsStore(s3, BUCKET).manifest(OLD)
