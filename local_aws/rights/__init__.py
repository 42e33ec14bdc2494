"""Judge requests that are signed with a role's key by that role's policies, as IAM does."""
