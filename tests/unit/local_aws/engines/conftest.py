"""Fixtures: a PATH of fakes only, and a setup that engines are started for."""

from __future__ import annotations

from fakes.engine_programs import make_setup, programs

__all__ = ["make_setup", "programs"]
