"""The models of one container with their states: loading, loaded, in use or being unloaded."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def model_id_of(target: str) -> str:
    """Return the name of a model in the container: opaque, like SageMaker's, and the same for equal TargetModels."""
    return hashlib.sha256(target.encode()).hexdigest()[:32]


@dataclass(eq=False)
class CachedModel:
    """A model in one container that is being loaded, is loaded or is being unloaded.

    `leases` counts the calls that wait for the model or run on it; `calls` counts the calls that have ended. `posting`
    is True during the load request to the container. `retiring` is True once the model is to be unloaded; no call may
    lease the model then. `last_used` is a time of time.monotonic, in seconds.
    """

    target: str
    model_id: str
    loaded: bool = False
    retiring: bool = False
    posting: bool = False
    leases: int = 0
    calls: int = 0
    last_used: float = field(default_factory=time.monotonic)
    load: asyncio.Task[None] | None = None


class CachedModels:
    """All models of one container, and a signal for tasks that wait until the state of a model changes."""

    def __init__(self) -> None:
        self._by_target: dict[str, CachedModel] = {}
        self._change = asyncio.Event()

    def by_last_use(self) -> Sequence[CachedModel]:
        """Return all models, the most recently used last."""
        return sorted(self._by_target.values(), key=lambda model: model.last_used)

    def get(self, target: str) -> CachedModel | None:
        """Return the model of a TargetModel; None if it is neither loaded, nor being loaded, nor being unloaded."""
        return self._by_target.get(target)

    def add(self, target: str) -> CachedModel:
        """Add a model that will be loaded."""
        model = self._by_target[target] = CachedModel(target=target, model_id=model_id_of(target))
        return model

    def remove(self, model: CachedModel) -> None:
        """Forget a model; the next call of its TargetModel loads it again."""
        self._by_target.pop(model.target, None)

    def changed(self) -> None:
        """Wake all waiters of `wait_for_change`."""
        self._change.set()
        self._change = asyncio.Event()

    async def wait_for_change(self, deadline: float | None = None) -> None:
        """Wait for the next `changed`, the signal that the state of a model has changed.

        Raises:
            TimeoutError: there was no change before `deadline`, a time of time.monotonic in seconds.
        """
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        await asyncio.wait_for(self._change.wait(), remaining)
