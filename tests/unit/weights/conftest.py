"""An S3 in memory, models made of a few bytes, and what counts the requests."""

from __future__ import annotations

import json
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from cohost.artifacts.weights import Revision
from cohost.catalog import ModelEntry
from cohost.weights.push import Pusher
from cohost.weights.source import Folders
from cohost.weights.store import WeightsStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

BUCKET = "weights-of-ours"
MIB = 1024 * 1024
REVISION = Revision("org/nli", "a" * 40)
CONFIG = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    """A client of an S3 in memory that holds one empty bucket."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HF_TOKEN", "COHOST_HUB"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client


class Requests:
    """Counts the requests of a client by operation, and stops one where a test says so."""

    def __init__(self, client: S3Client) -> None:
        self.counts: Counter[str] = Counter()
        self._stop: tuple[str, int] | None = None
        client.meta.events.register("before-call.s3", self._on_call)

    def stop(self, operation: str, number: int) -> None:
        """End the nth call of an operation, counted from now, and all after it, as Ctrl-C would."""
        self.counts.clear()
        self._stop = (operation, number)

    def go_on(self) -> None:
        """Let everything through again, and count from 0."""
        self.counts.clear()
        self._stop = None

    def _on_call(self, model: Any, **_: object) -> None:
        self.counts[model.name] += 1
        if self._stop and model.name == self._stop[0] and self.counts[model.name] >= self._stop[1]:
            raise KeyboardInterrupt


@pytest.fixture
def requests(s3: S3Client) -> Requests:
    """The requests of the client."""
    return Requests(s3)


def safetensors(size: int, fill: bytes = b"w") -> bytes:
    """A file in safetensors with one tensor of so many bytes."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + fill * size


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


class Steps:
    """What a push said of its progress."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: list[int] = []
        self.totals: list[int] = []

    def begin(self, what: str, total: int) -> None:
        """A step begins."""
        self.names.append(what)
        self.totals.append(total)
        self.counts.append(0)

    def advance(self, count: int) -> None:
        """It goes on."""
        self.counts[-1] += count


def entry_of(**settings: Any) -> ModelEntry:
    """The catalog's entry of the model."""
    facts = {"model_id": REVISION.model_id, "revision": REVISION.revision, "task": "text-classification"}
    return ModelEntry.model_validate({**facts, "weights": "s3", **settings})


@pytest.fixture
def pusher(s3: S3Client, model: Path) -> Callable[..., Pusher]:
    """Makes a pusher from the model's folder into the bucket, in parts of S3's least size."""

    def make(steps: Steps | None = None, roots: tuple[Path, ...] = ()) -> Pusher:
        source = Folders(roots or (model.parent.parent,))
        return Pusher(WeightsStore(s3, BUCKET), source, steps or Steps(), part_bytes=5 * MIB)

    return make


@pytest.fixture
def keys(s3: S3Client) -> Callable[[], set[str]]:
    """All keys of the bucket."""
    return lambda: {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}
