"""Images and instance types: the hardware and the server that a catalog names."""
