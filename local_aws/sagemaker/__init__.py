"""The emulated SageMaker: control plane, runtime, and endpoints whose containers serve real models."""
