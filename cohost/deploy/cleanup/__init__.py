"""Removing what the project made, and proof that nothing of it is left: `cohost cleanup` and `cohost orphans`."""
