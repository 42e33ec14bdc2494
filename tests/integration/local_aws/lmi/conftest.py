"""Fixtures that several test files of this folder share."""

from __future__ import annotations

from lmi_served import served

__all__ = ["served"]
