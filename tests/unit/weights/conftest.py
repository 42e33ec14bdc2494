"""An S3 in memory, models made of a few bytes, and what counts the requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws
from weights_models import BUCKET, CONFIG, MIB, REVISION, Requests, Steps, safetensors

from cohost.weights.push import Pusher
from cohost.weights.source import Folders
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    """Return a client of an in-memory S3 that has one empty bucket."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HF_TOKEN", "COHOST_HUB"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def requests(s3: S3Client) -> Requests:
    """The requests of the client."""
    return Requests(s3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a whole model, below the root `tmp_path / "hub"`."""
    folder = tmp_path / "hub" / REVISION.model_id
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("words")
    (folder / "model.safetensors").write_bytes(safetensors(6 * MIB))
    return folder


@pytest.fixture
def pusher(s3: S3Client, model: Path) -> Callable[..., Pusher]:
    """Makes a pusher from the model's folder into the bucket, in parts of S3's least size."""

    def make(steps: Steps | None = None, roots: tuple[Path, ...] = ()) -> Pusher:
        source = Folders(roots or (model.parent.parent,))
        return Pusher(WeightsStore(s3, BUCKET), source, steps or Steps(), part_bytes=5 * MIB)

    return make


@pytest.fixture
def keys(s3: S3Client) -> Callable[[], set[str]]:
    """Return all keys of the bucket."""
    return lambda: {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}
