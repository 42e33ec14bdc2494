"""The LMI container: DJL Serving 0.36.0's HTTP API with one process a model worker.

`Container` starts one as a child process; `python -m local_aws.lmi` runs one in the foreground. Facts about the real
server rest on recorded exchanges (tests/data/djl_vectors) and on its public source, "DJL Serving 0.36.0".
"""

from local_aws.lmi.process import Container, ContainerError

__all__ = ["Container", "ContainerError"]
