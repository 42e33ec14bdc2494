"""Load tests with Locust: the locustfile `encoders.py` and its parts."""

from __future__ import annotations

from cohost.errors import CohostError


class LoadError(CohostError):
    """An option of the load test, or a combination of options, cannot be used."""
