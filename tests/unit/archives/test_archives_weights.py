"""Archives with weights in the weights bucket: its name is inserted, and no archive is published without them."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused

from cohost.archives.weights import Revision, revision_at, revision_in, revision_of_key, with_bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import CloudFormation

    Send = Callable[..., dict[str, Any]]
    Keys = Callable[[], set[str]]

pytestmark = pytest.mark.process

BUCKET = "weights-of-ours"
OLD, NEW = Revision("org/nli", "a" * 40), Revision("org/nli", "b" * 40)


def models(revision: Revision) -> dict[str, dict[str, str]]:
    """Return one model whose weights were pushed, and one that the container fetches from the Hub."""
    return {
        "nli": {"engine": "Python", "option.model_id": revision.location},
        "mini": {"engine": "Python", "option.model_id": "org/mini"},
    }


def event(cloudformation: CloudFormation, kind: str, revision: Revision, **fields: Any) -> dict[str, Any]:
    """Return an event with the weights bucket in its properties."""
    made = cloudformation.event(kind, models(revision), **fields)
    for name in {"ResourceProperties", "OldResourceProperties"} & made.keys():
        made[name]["WeightsBucket"] = BUCKET
    return made


def push(s3: S3Client, *revisions: Revision) -> None:
    """Write the manifests of complete uploads, which are all that the function looks at."""
    s3.create_bucket(Bucket=BUCKET)
    for revision in revisions:
        s3.put_object(Bucket=BUCKET, Key=revision.manifest, Body=b"{}")


def text_of(s3: S3Client, key: str) -> str:
    """The serving.properties in an archive."""
    data = s3.get_object(Bucket="models", Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        file = tar.extractfile("serving.properties")
        assert file is not None
        return file.read().decode()


def test_archive_names_the_bucket(send: Send, cloudformation: CloudFormation, s3: S3Client) -> None:
    """The archive has a complete s3:// address, and a model from the Hub keeps its id."""
    push(s3, OLD)
    uri = send(event(cloudformation, "Create", OLD))["PhysicalResourceId"].removeprefix("s3://models/")
    assert f"option.model_id=s3://{BUCKET}/weights/org/nli/{'a' * 40}/\n" in text_of(s3, f"{uri}nli.tar.gz")
    assert "option.model_id=org/mini\n" in text_of(s3, f"{uri}mini.tar.gz")


def test_nothing_is_published_without_the_weights(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys
) -> None:
    """A deploy before a complete push fails at once with the command to run, and writes nothing."""
    push(s3)
    s3.put_object(Bucket=BUCKET, Key=f"{OLD.prefix}config.json", Body=b"{}")
    answer = send(event(cloudformation, "Create", OLD))
    assert answer["Status"] == "FAILED"
    assert "models nli: no whole upload" in answer["Reason"]
    assert "run `cohost weights push nli` and deploy again" in answer["Reason"]
    assert keys() == set()


def test_update_without_the_new_weights_leaves_the_old_generation(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys
) -> None:
    """An update without the new weights fails, and the old generation stays."""
    push(s3, OLD)
    first = send(event(cloudformation, "Create", OLD))["PhysicalResourceId"]
    before = keys()
    answer = send(event(cloudformation, "Update", NEW, old=models(OLD), PhysicalResourceId=first))
    assert answer["Status"] == "FAILED"
    assert keys() == before


def test_new_revision_makes_a_new_generation(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys
) -> None:
    """A new revision of the weights changes the archive, and so its generation and address."""
    push(s3, OLD, NEW)
    first = send(event(cloudformation, "Create", OLD))["PhysicalResourceId"]
    second = send(event(cloudformation, "Update", NEW, old=models(OLD), PhysicalResourceId=first))["PhysicalResourceId"]
    assert second != first
    assert len(keys()) == 4


def test_rollback_does_not_ask_for_the_weights_again(send: Send, cloudformation: CloudFormation, s3: S3Client) -> None:
    """A rollback to stored archives does not check the weights bucket."""
    push(s3, OLD, NEW)
    first = send(event(cloudformation, "Create", OLD))["PhysicalResourceId"]
    second = send(event(cloudformation, "Update", NEW, old=models(OLD), PhysicalResourceId=first))["PhysicalResourceId"]
    s3.delete_object(Bucket=BUCKET, Key=OLD.manifest)
    back = send(event(cloudformation, "Update", OLD, old=models(NEW), PhysicalResourceId=second))
    assert (back["Status"], back["PhysicalResourceId"]) == ("SUCCESS", first)


def test_missing_bucket_name_is_refused(send: Send, cloudformation: CloudFormation, keys: Keys) -> None:
    """An event without the name of the weights bucket is rejected, so no archive contains the placeholder."""
    answer = send(cloudformation.event("Create", models(OLD)))
    assert "WeightsBucket: is missing" in answer["Reason"]
    assert keys() == set()


def test_keys_and_addresses_read_back() -> None:
    """A revision is read back from its properties, address and keys; keys of others are not taken for a revision."""
    assert revision_in({"option.model_id": OLD.location}) == OLD
    assert revision_at(OLD.uri(BUCKET), BUCKET) == OLD
    assert revision_of_key(f"{OLD.prefix}model.safetensors") == revision_of_key(OLD.manifest) == OLD
    assert revision_of_key(Revision("gpt2", "c" * 40).manifest) == Revision("gpt2", "c" * 40)
    for foreign in ("weights/notes.txt", "weights/org/nli/main/config.json", "manifests/x.json", "archive.tar.gz"):
        assert revision_of_key(foreign) is None
    assert revision_at("s3://other/" + OLD.prefix, BUCKET) is None
    assert revision_at("org/nli", BUCKET) is None


def test_properties_with_other_weights_stay() -> None:
    """A Hub id and an s3:// address of the user's own need no weights bucket."""
    for model_id in ("org/nli", "s3://mine/models/nli/"):
        assert with_bucket({"option.model_id": model_id}, None) == {"option.model_id": model_id}
    with refused("weights-bucket-missing"):
        with_bucket({"option.model_id": OLD.location}, "")


def test_bundle_is_not_published_without_the_weights(
    send: Send, cloudformation: CloudFormation, s3: S3Client, keys: Keys
) -> None:
    """A bundle is rejected if the weights of one of its models are incomplete."""
    push(s3)
    made = event(cloudformation, "Create", OLD)
    made["ResourceProperties"]["Layout"] = "bundle"
    answer = send(made)
    assert "models nli: no whole upload" in answer["Reason"]
    assert keys() == set()
