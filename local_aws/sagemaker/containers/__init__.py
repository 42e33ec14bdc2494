"""Server containers as SageMaker sees them: a process to start, and HTTP to it."""
