"""The container's HTTP server: routes, inference, management and metrics."""
