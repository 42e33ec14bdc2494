"""Endpoints of each design, and what scales them and shifts calls to their new instances."""
