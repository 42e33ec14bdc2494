"""The designs that the co-host is compared with, beyond what their stacks and the catalog hold: models as ONNX."""
