"""A deployed endpoint: its stack's outputs, its client, status, probes and logs, its copies and their scaling."""
