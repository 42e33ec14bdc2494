"""The LMI container: the HTTP API of DJL Serving 0.36.0 with one process per model worker.

`python -m local_aws.lmi` runs a container in the foreground, `container.Container` runs one as a child process. Facts
about the real server are from recorded exchanges (tests/data/djl_vectors, tests/data/djl_lifecycle; numbers such as
"recording 31" name their files) and from its public source, "DJL Serving 0.36.0".
"""
