"""Answers before a deploy: memory, price, scaling, packing and the servers that could run a catalog."""
