"""Programs for the load test: a stub (a target with known behaviour), and runs on the local AWS emulator."""
