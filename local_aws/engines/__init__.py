"""Servers for the archives of a catalog on this machine, and their use of its memory.

`embedded` is this project's own container, `djl` a DJL Serving that is installed here, `docker` the very image that an
endpoint runs. All three get the same models over the same HTTP API, so a catalog can be tried where it is going to run.
"""
