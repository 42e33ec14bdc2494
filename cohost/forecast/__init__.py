"""Forecasts for a catalog before a deploy: its memory, price and scaling, and its packing onto endpoints."""
