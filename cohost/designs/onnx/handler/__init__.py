"""The Python handler of ONNX archives. An archive has the handler's files and those shared with `cohost.handler`."""
