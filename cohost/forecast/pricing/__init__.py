"""Look up the prices of instances, and compute the costs of a catalog, of its changes and of other designs."""
