"""What goes wrong while something is removed."""

from __future__ import annotations

from cohost.errors import CohostError


class CleanupError(CohostError):
    """Something could not be removed, or did not settle in time; the text says what to do."""
