"""Engines (model servers that serve a catalog's archives on this machine), and reports on the memory that they use.

The engine `embedded` is this project's own embedded container, `djl` is a DJL Serving installed on this machine, and
`docker` is the endpoint's image in Docker. All three load the same models over the same HTTP API, so a catalog can be
tested on the real server.
"""
