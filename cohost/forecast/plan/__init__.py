"""The memory plan: the GPU and host memory that a catalog needs, before anything is deployed.

    config.json, safetensors header ──► profiles (a reviewed file beside the catalog)
    profile ──► shapes ──► activations ─┐
    profile ──► weights ────────────────┼──► workers ──► memory ──► capacity, drawing
    instance table ─────────────────────┘

Nothing here imports torch, transformers or the CDK, and only `model_files.HubFiles` uses the network, on request.
"""
