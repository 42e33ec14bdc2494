"""Fault injection into the processes that run models; the folder is on the search path of the container's processes."""
