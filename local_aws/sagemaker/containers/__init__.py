"""The interface to server containers: a process to start, and its HTTP API."""
