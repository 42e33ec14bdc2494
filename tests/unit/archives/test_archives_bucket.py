"""The S3 calls of the archives: their results, and their errors if S3 rejects a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.archives.bucket import Bucket
from cohost.archives.errors import ArtifactError, MissingBucketError, OccupiedError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import Spy


def bucket(client: object, name: str = "models") -> Bucket:
    """A bucket without a time limit."""
    return Bucket(client, name, checkpoint=lambda: None)  # type: ignore[arg-type]


def test_digest_tells_ours_from_foreign_and_absent(s3: S3Client) -> None:
    """An archive has its digest, another object an empty one, and a missing object none."""
    bucket(s3).put_archive("a.tar.gz", b"1", "d1")
    s3.put_object(Bucket="models", Key="b.tar.gz", Body=b"2")
    assert bucket(s3).digests(["a.tar.gz", "b.tar.gz", "c.tar.gz"]) == {"a.tar.gz": "d1", "b.tar.gz": ""}


def test_archive_is_never_overwritten(s3: S3Client) -> None:
    """Writing the same content again succeeds, and writing other content is rejected and changes no byte."""
    ours = bucket(s3)
    ours.put_archive("a", b"1", "d1")
    ours.put_archive("a", b"1", "d1")
    with refused("archive-occupied", kind=OccupiedError):
        ours.put_archive("a", b"2", "d2")
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"1"


def test_listing_and_deleting_go_beyond_one_page(s3: S3Client, spy: Spy) -> None:
    """More than a thousand objects are listed and deleted in as few calls as possible."""
    names = [f"p/{number:04}" for number in range(1001)]
    for name in names:
        s3.put_object(Bucket="models", Key=name, Body=b"")
    assert bucket(spy).keys("p/") == names
    bucket(spy).delete(names)
    assert bucket(spy).keys("p/") == []
    assert len(spy.calls["delete_objects"]) == 2


def test_folders_are_the_names_right_below(s3: S3Client) -> None:
    """Only names with objects below them are folders, not objects beside them."""
    for key in ("p/a/1", "p/a/b/2", "p/c/3", "p/d"):
        s3.put_object(Bucket="models", Key=key, Body=b"")
    assert bucket(s3).folders("p/") == ["a", "c"]


def test_deleting_what_is_gone_is_no_fault(s3: S3Client) -> None:
    """A repeated deletion succeeds, and an empty one sends no request."""
    bucket(s3).delete(["never"])
    bucket(s3).delete([])


def test_single_object_that_cannot_be_deleted_is_an_error(s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that S3 reports as not deleted inside a successful answer is an error."""
    monkeypatch.setattr(
        s3, "delete_objects", lambda **_: {"Errors": [{"Key": "a", "Code": "AccessDenied", "Message": "no"}]}
    )
    with refused("store-request-failed", "s3://models/a"):
        bucket(s3).delete(["a"])


def test_missing_bucket_has_an_error_of_its_own(s3: S3Client) -> None:
    """A missing bucket has its own error class, because it is a success for some callers."""
    with refused("bucket-missing", kind=MissingBucketError):
        bucket(s3, "none").keys("p/")


@pytest.mark.parametrize("operation", ["head_object", "put_object", "delete_objects"])
def test_refusal_is_one_line_with_a_fix(spy: Spy, operation: str) -> None:
    """The error of a rejected call is one line with S3's code, the key and the fix."""
    spy.fail(operation, 1, "AccessDenied")
    calls = {
        "head_object": lambda: bucket(spy).digest("a"),
        "put_object": lambda: bucket(spy).put_mark("a"),
        "delete_objects": lambda: bucket(spy).delete(["a"]),
    }
    with refused("store-request-failed") as caught:
        calls[operation]()
    assert "\n" not in str(caught.value)


def test_first_error_among_parallel_reads_ends_them(spy: Spy) -> None:
    """The first error of parallel reads stops the remaining reads."""
    spy.fail("head_object", 1)
    with refused("store-request-failed"):
        bucket(spy).digests([f"k{number}" for number in range(1000)])
    assert len(spy.calls["head_object"]) < 500


def test_checkpoint_is_asked_before_each_request(s3: S3Client) -> None:
    """The time limit is checked before each request."""

    def stop() -> None:
        raise ArtifactError("publishing-too-slow", "time limit", "is over")

    with refused("publishing-too-slow"):
        Bucket(s3, "models", stop).put_mark("a")
    assert bucket(s3).keys("") == []
