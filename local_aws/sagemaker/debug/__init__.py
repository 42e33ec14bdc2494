"""Pages of the emulated SageMaker that the real one does not have: the internal state, and fault injection."""
