"""The expiry of an endpoint, which is then deleted without anybody's doing."""
