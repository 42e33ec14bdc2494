"""What can be wrong with a simulation's input."""

from cohost.errors import CohostError


class SimulationError(CohostError):
    """A trace, a pattern or a setting cannot be replayed."""
