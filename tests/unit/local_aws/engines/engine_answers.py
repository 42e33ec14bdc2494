"""What docker answers where all is well."""

from __future__ import annotations

from typing import Any

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi26.0.0-cu130"
LABELS = (
    '{"com.amazonaws.sagemaker.capabilities.multi-models":"true",'
    '"com.amazonaws.sagemaker.capabilities.accept-bind-to-port":"true","maintainer":"x"}\n'
)
DOCKER: dict[str, Any] = {
    "version": {"out": "29.0.1\n"},
    "container inspect": {"code": 1, "err": "No such container\n"},
    "image inspect": {"out": LABELS},
    "rm": {},
}
