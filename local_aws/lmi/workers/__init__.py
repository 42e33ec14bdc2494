"""The workers of a model: the pool, the queue of requests, processes, and the code that runs in a process."""
