"""Pages that SageMaker does not have: a look inside, and faults on demand."""
