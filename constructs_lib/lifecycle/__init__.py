"""The end of an endpoint's life: it expires and is deleted by itself."""
