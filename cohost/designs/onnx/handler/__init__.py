"""The Python handler of ONNX archives.

An archive contains the files of this folder, and the modules of `cohost.handler` that these files import.
"""
