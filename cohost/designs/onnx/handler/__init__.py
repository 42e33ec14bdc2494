"""The Python handler of ONNX archives. An archive has these files and those shared with `cohost.handler`."""
