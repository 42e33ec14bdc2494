"""Alarms, dashboard and budget of an endpoint."""
