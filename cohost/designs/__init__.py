"""The code of comparison designs beside their stacks and catalog sections: models as ONNX."""
