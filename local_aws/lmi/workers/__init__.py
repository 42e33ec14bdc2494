"""The workers of a model: processes, the pool that keeps them, and the queue of their requests."""
