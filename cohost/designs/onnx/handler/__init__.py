"""The Python handler of ONNX archives. Its files travel in archives, beside those it shares with `cohost.handler`."""
