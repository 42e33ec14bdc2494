"""Removal of the project's AWS resources, with proof that none is left: `cohost cleanup` and `cohost orphans`."""
