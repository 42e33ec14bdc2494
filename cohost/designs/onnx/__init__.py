"""Design 02, ONNX models on a CPU: export the catalog's models, check them against torch, pack them for DJL Serving.

Exporting needs the packages of the dependency groups `onnx` and `local`. Modules that import these packages are
themselves imported only when a model is exported, so that the rest of cohost needs neither group.
"""
