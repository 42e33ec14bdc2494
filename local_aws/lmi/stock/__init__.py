"""The server's own handler: Hugging Face pipelines, "djl_python.huggingface" in the image."""
