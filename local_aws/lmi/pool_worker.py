"""A member of a model's worker pool."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from local_aws.lmi.worker_link import WorkerLink

_numbers = itertools.count(1)


@dataclass(eq=False, slots=True)
class Worker:
    """A member of a pool; `permanent` ones never idle out, `started_at` is in seconds since the epoch."""

    permanent: bool
    number: int = field(default_factory=lambda: next(_numbers))
    started_at: float = field(default_factory=time.time)
    running: bool = True
    busy: bool = False
    stopped_at: float = 0.0
    pid: int = 0
    link: WorkerLink | None = None
    serving: asyncio.Task[None] | None = None
