"""The S3 keys of archives and marks, and their recognition."""

from __future__ import annotations

import pytest

from cohost.archives.layout import Layout

LAYOUT = Layout(bucket="b", prefix="p/q/")
ID = "0123456789ab"


def test_keys_of_a_generation() -> None:
    """Archives are below the URI that SageMaker gets, and marks beside it."""
    assert LAYOUT.uri(ID) == f"s3://b/p/q/{ID}/"
    assert LAYOUT.archive(ID, "m") == f"p/q/{ID}/m.tar.gz"
    assert LAYOUT.tombstone(ID, "m", "d") == f"p/q/removed/{ID}/m/d"
    assert LAYOUT.unfinished(ID) == f"p/q/unfinished/{ID}"


def test_keys_are_recognised() -> None:
    """A URI, an archive and a tombstone are parsed back to their parts."""
    assert LAYOUT.generation_at(LAYOUT.uri(ID)) == ID
    assert LAYOUT.name_at(ID, LAYOUT.archive(ID, "m")) == "m"
    assert LAYOUT.removed_at(ID, LAYOUT.tombstone(ID, "m", "d")) == ("m", "d")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "cohost-failed-create-1",
        f"s3://other/p/q/{ID}/",
        f"s3://b/p/{ID}/",
        f"s3://b/p/q/{ID}",
        f"s3://b/p/q/{ID}/x/",
        f"s3://b/p/q/r/{ID}/",
        "s3://b/p/q/",
        "s3://b/p/q/removed/",
        f"s3://b/p/q/{ID.upper()}/",
        f"https://b/p/q/{ID}/",
    ],
)
def test_other_uris_are_no_generation(uri: str) -> None:
    """A URI with another bucket, another prefix or an invented id is no generation."""
    assert LAYOUT.generation_at(uri) is None


@pytest.mark.parametrize("rest", ["", ".tar.gz", "m", "m.zip", "x/m.tar.gz", "m.tar.gz.bak"])
def test_other_objects_are_no_archive(rest: str) -> None:
    """Only an object `<name>.tar.gz` directly below the generation is a model."""
    assert LAYOUT.name_at(ID, f"p/q/{ID}/{rest}") is None


@pytest.mark.parametrize("rest", ["", "m", "m/", "/d", "m/d/e"])
def test_other_objects_are_no_tombstone(rest: str) -> None:
    """Only an object `<name>/<digest>` below the prefix of removed models is a tombstone."""
    assert LAYOUT.removed_at(ID, f"p/q/removed/{ID}/{rest}") is None
