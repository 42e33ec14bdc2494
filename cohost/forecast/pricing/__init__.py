"""Prices of instances, and the monthly bill of a catalog, of its changes and of its designs."""
