"""The models of a container: settings, files, memory and workers."""
