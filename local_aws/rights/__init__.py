"""The evaluation of requests signed with a role's key against the role's policies, as IAM does it."""
