"""Engines: servers that serve the archives of a catalog on this machine, and reports on the memory they use.

The engine `embedded` is this project's own container, `djl` a DJL Serving installed on this machine, `docker` the image
of the endpoint. All three get the same models over the same HTTP API, so a catalog can be tested on its real server.
"""
