"""Locust load tests of the co-hosted encoders."""
