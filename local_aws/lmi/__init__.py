"""The LMI container: the HTTP API of DJL Serving 0.36.0 with one process per model worker.

`python -m local_aws.lmi` runs one in the foreground, `container.Container` as a child process. Facts about the real
server rest on recorded exchanges (tests/data/djl_vectors, tests/data/djl_lifecycle) and on its public source, "DJL
Serving 0.36.0".
"""
