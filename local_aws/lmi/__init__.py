"""The LMI container: DJL Serving 0.36.0's HTTP API with one process a model worker.

`Container` starts one as a child process; `python -m local_aws.lmi` runs one in the foreground. Facts about the real
server rest on recorded exchanges (tests/data/djl_vectors) and on its public source, "DJL Serving 0.36.0".
"""

from cohost.callers import TOKEN_HEADER
from local_aws.lmi.process import Container, ContainerError, address_of

__all__ = ["TOKEN_HEADER", "Container", "ContainerError", "address_of"]
