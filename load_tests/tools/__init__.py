"""Programs around the load test: a stub as its target, and runs on the local AWS emulator."""
