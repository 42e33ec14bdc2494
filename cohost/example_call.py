"""A call of a model that can be pasted into a shell."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cohost.routing import Route


def call_of(route: Route, task: str, region: str) -> str:
    """The `aws` command that calls a model by its route with one text, and labels where its task needs some."""
    body: dict[str, object] = {"inputs": "The delivery came two days early."}
    if task == "zero-shot-classification":
        body["parameters"] = {"candidate_labels": ["shipping", "billing"]}
    return shlex.join(
        [
            *("aws", "sagemaker-runtime", "invoke-endpoint", "--region", region),
            *route.command_options(),
            *("--content-type", "application/json", "--cli-binary-format", "raw-in-base64-out"),
            *("--body", json.dumps(body), "/dev/stdout"),
        ]
    )
