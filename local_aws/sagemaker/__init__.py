"""SageMaker: control plane, runtime, and endpoints whose containers really serve."""
