"""The models of a container: their settings, files, memory and workers."""
