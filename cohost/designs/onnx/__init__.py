"""Design 02: the catalog's models as ONNX on a CPU, exported here, checked against torch, packed for DJL Serving.

Exporting needs the packages of the dependency groups `onnx` and `local`. The modules that import these packages are
imported only when a model is exported, so that the rest of cohost needs neither group.
"""
