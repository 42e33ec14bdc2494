"""A deployed endpoint: its outputs, its client, its status, its copies and schedules."""
