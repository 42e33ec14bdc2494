"""The faults of planning.

CohostError
└── PlanError      a model's shape or weights cannot be read, or a plan is asked for that nothing is known for
"""

from __future__ import annotations

from cohost.errors import CohostError


class PlanError(CohostError):
    """A model's shape or weights cannot be read, or nothing is known of what a plan is asked for."""
