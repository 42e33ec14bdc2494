"""SageMaker's runtime: InvokeEndpoint."""
