"""The fault of this package."""

from __future__ import annotations

from cohost.errors import CohostError


class WeightsError(CohostError):
    """Weights cannot be fetched, are not as they must be, or cannot be stored."""
