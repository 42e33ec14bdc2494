"""The models on one instance of a multi-model endpoint: in memory and on disk."""
