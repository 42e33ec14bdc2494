"""The container's HTTP server: inference, management and metrics."""
