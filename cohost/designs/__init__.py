"""The code of the comparison designs outside their stacks and catalog sections: the export of models to ONNX."""
