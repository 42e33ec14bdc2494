"""Fault injection into the processes that run models; the container's processes have this folder on sys.path."""
