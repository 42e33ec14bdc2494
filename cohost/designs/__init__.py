"""The code of the comparison designs that is outside their stacks and catalog sections: models as ONNX."""
