"""Traffic replayed against both topologies: the cost of scaling settings, and the calls that they refuse or delay."""
