"""Look up the server images and the SageMaker instance types that a catalog can name."""
