"""Waiting until something that is under way has come to rest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cohost.cleanup.errors import CleanupError

if TYPE_CHECKING:
    from collections.abc import Callable

# SageMaker goes on with a start-up that fails for an hour and more, and refuses every delete meanwhile.
LIMIT_S = 2 * 60 * 60.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How to wait: the seconds between looks, the longest wait, and whom to tell what is waited for."""

    poll_s: float = 10.0
    limit_s: float = LIMIT_S
    tell: Callable[[str], None] = lambda _: None

    def until(self, what: str, look: Callable[[], str | None]) -> None:
        """Wait while `look` names a state that something is in; None is the end.

        Raises:
            CleanupError: the limit has passed.
        """
        deadline = time.monotonic() + self.limit_s
        while (state := look()) is not None:
            self.tell(f"{what} is {state}; waiting")
            if time.monotonic() + self.poll_s > deadline:
                raise CleanupError(
                    f"{what} is {state} after {self.limit_s:g} s; allowed: an end within that time; fix: look into its "
                    "events, and run `cohost cleanup` again, which goes on where this one ended"
                )
            time.sleep(self.poll_s)
