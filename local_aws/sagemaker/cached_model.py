"""A model in a container's memory, as the instance keeps account of it."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class LoadRefused(Exception):  # noqa: N818 - says what happened
    """The container did not load the model; `status` and `text` are its answer."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)


@dataclass(eq=False)
class CachedModel:
    """A model that is being loaded or is loaded; `leases` counts the calls that wait for it or run on it."""

    target: str
    model_id: str
    loaded: bool = False
    retiring: bool = False
    posting: bool = False
    leases: int = 0
    calls: int = 0
    last_used: float = field(default_factory=time.monotonic)
    load: asyncio.Task[None] | None = None


def model_id_of(target: str) -> str:
    """The name by which the container knows a model: opaque, as SageMaker's is, but the same for equal targets."""
    return hashlib.sha256(target.encode()).hexdigest()[:32]
