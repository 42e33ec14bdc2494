"""What a catalog needs of an instance before anything is deployed: memory of GPUs and host, and what fits.

    config.json, safetensors header ──► profiles (a reviewed file beside the catalog)
    profile ──► shapes ──► activations ─┐
    profile ──► weights ────────────────┼──► workers ──► memory ──► capacity, drawing
    instance table ─────────────────────┘

Nothing here imports torch, transformers or the CDK, and only `remote_files` can reach a network, when asked to.
"""
