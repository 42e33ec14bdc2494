"""Models of a few bytes, their catalog entry, and counters of requests and steps."""

from __future__ import annotations

import json
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

from cohost.archives.weights import Revision
from cohost.catalog.models import ModelEntry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "weights-of-ours"
MIB = 1024 * 1024
REVISION = Revision("org/nli", "a" * 40)
CONFIG = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}


class Requests:
    """Counts requests by operation, and stops one if a test requests it."""

    def __init__(self, client: S3Client) -> None:
        self.counts: Counter[str] = Counter()
        self._stop: tuple[str, int] | None = None
        client.meta.events.register("before-call.s3", self._on_call)

    def stop(self, operation: str, number: int) -> None:
        """Stop the nth call of an operation from now on, and all later ones, as Ctrl-C would."""
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


def safetensors(size: int, fill: bytes = b"w") -> bytes:
    """Return a safetensors file with one tensor of this size."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + fill * size


class Steps:
    """The reported steps of a push."""

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
        """Add to the step."""
        self.counts[-1] += count


def entry_of(**settings: Any) -> ModelEntry:
    """The catalog's entry of the model."""
    facts = {"model_id": REVISION.model_id, "revision": REVISION.revision, "task": "text-classification"}
    return ModelEntry.model_validate({**facts, "weights": "s3", **settings})
