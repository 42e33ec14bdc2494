"""The evaluation, as in IAM, of requests that are signed with a role's key against the role's policies."""
