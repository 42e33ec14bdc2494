"""The memory plan: the GPU and host memory that a catalog needs, before anything is deployed.

    config.json, safetensors header ──► profiles (a reviewed file beside the catalog)
    profile ──► shapes ──► activations ─┐
    profile ──► weights ────────────────┼──► workers ──► memory ──► capacity, drawing
    instance table ─────────────────────┘

No module of this package imports torch, transformers or the CDK. Only `model_files.HubFiles` uses the network, and only
when a user requests files from the Hub.
"""
