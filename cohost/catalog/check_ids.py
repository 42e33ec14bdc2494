"""The ids of the checks that run at every `cdk synth`: warnings can be acknowledged, errors stop a deploy."""

from __future__ import annotations

from typing import Final

ERRORS: Final = (
    "image-backend",
    "image-multi-model",
    "image-region",
    "image-accelerator",
    "instance-cuda",
    "instance-kms-key",
    "model-memory",
    "model-task",
    "model-attention",
    "hub-offline",
    "expires-past",
    "component-accelerators",
    "startup-environment",
    "startup-memory",
    "startup-model",
    "network-hub",
    "network-s3",
    "network-isolation",
    "weights-archive",
)

WARNINGS: Final = (
    "inference-ami-version",
    "instance-type",
    "image-accelerator",
    "instance-multi-model",
    "memory-unknown",
    "attention-unused",
    "gpu-memory",
    "host-memory",
    "memory-tight",
    "required-memory",
    "cpu-workers-unbound",
    "cpu-workers",
    "revision-not-pinned",
    "scaling-metric",
    "price-unknown",
    "price-old",
)
