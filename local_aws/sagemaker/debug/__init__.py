"""Pages that SageMaker does not have: the internal state, and fault injection."""
