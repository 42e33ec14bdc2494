"""Forecast a catalog's memory, price and scaling before a deploy, and distribute its models over endpoints."""
