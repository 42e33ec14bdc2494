"""The workers of a model: their pool, the queue of requests, their processes, and the code that runs in a process."""
