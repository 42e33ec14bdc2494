"""Weights from S3, fetched by the container."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from fakes.faults import faulted
from moto import mock_aws

from local_aws.lmi.models.files import download

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a bucket with two revisions whose names start alike, and other objects."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="weights")
        for key in ("m/ab/", "m/ab/config.json", "m/ab/1_Pooling/config.json", "m/abc/config.json", "m/ab.json"):
            s3.put_object(Bucket="weights", Key=key, Body=key.encode())
        yield "weights"


@pytest.mark.parametrize("address", ["s3://weights/m/ab/", "s3://weights/m/ab"])
def test_fetches_what_lies_below_the_address_alone(bucket: str, address: str, tmp_path: Path) -> None:
    """A fetch gets the objects below the address, but not those of a longer name."""
    assert bucket
    download(address, tmp_path)
    files = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"config.json": "m/ab/config.json", "1_Pooling/config.json": "m/ab/1_Pooling/config.json"}


def test_nothing_there_fails_the_load(bucket: str, tmp_path: Path) -> None:
    """A model whose weights were deleted from S3 fails to load with that reason."""
    assert bucket
    with faulted("EngineException", 500, "s3://weights/m/none/"):
        download("s3://weights/m/none/", tmp_path)
