"""Endpoints of each design, their scaling, and the shift of calls to new instances."""
