"""Metrics and logs of endpoints, as SageMaker sends them to CloudWatch."""
