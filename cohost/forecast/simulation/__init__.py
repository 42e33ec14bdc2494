"""Replay traffic against both topologies, to compare the costs of scaling settings and the calls refused or delayed."""
