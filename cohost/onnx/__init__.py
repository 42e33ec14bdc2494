"""Design 02: the catalog's models as ONNX on a CPU. Exported here, checked against torch, packed for DJL Serving.

Exporting needs the packages of the dependency groups `onnx` and `local`; the modules that import them do so when they
are called, so that the rest of cohost needs neither.
"""
