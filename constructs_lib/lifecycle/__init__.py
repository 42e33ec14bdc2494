"""The expiry of an endpoint: it is deleted, or scaled to zero, at a stated time."""
