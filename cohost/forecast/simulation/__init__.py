"""Traffic replayed against both topologies: what scaling settings cost, and which calls they refuse or delay."""
