"""Evaluates requests that are signed with a role's key against the role's policies, as IAM does."""
