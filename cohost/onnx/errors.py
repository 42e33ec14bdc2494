"""The fault of exporting a model and of what was exported."""

from __future__ import annotations

from cohost.errors import CohostError


class OnnxError(CohostError):
    """A model cannot be exported, its export is not good enough, or an archive is not the one asked for."""
