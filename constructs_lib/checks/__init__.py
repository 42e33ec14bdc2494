"""Checks of a catalog against image, instance type, network and server, made at synth."""
