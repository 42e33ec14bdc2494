"""Checks at each `cdk synth` that a catalog suits its image, instance type, network and server."""
