"""The handlers that the server itself has: Hugging Face pipelines ("djl_python.huggingface" in the image) and ONNX."""
