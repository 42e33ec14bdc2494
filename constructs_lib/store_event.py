"""The size of what CloudFormation sends to the model store's function, checked before it is too late.

An update's event carries the properties twice, as they are and as they were. CloudFormation invokes asynchronously,
which takes 1 MB since late 2025 and took 256 KB before (AWS Lambda quotas); CloudFormation states neither for itself,
so the smaller one is kept to. An event over the limit would not arrive, and the stack would hang until its time-out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENT_LIMIT_BYTES: Final = 262_144

# The rest of the event: a signed response URL, ARNs, ids, names and the bucket.
ENVELOPE_BYTES: Final = 8_192


def event_bytes(properties: Mapping[str, object]) -> int:
    """The size of an update's event in bytes, at most: properties twice, with all but ASCII escaped, and envelope."""
    return 2 * len(json.dumps(properties, ensure_ascii=True)) + ENVELOPE_BYTES


def event_fault(models: Mapping[str, Mapping[str, str]], requirements: Mapping[str, str]) -> str | None:
    """What to tell the user where the models of one catalog do not fit into an event; None where they do."""
    size = event_bytes({"Models": models, "Requirements": requirements})
    if size <= EVENT_LIMIT_BYTES:
        return None
    return (
        f"models: {len(models)} entries make an update event of up to {size} bytes; "
        f"allowed: {EVENT_LIMIT_BYTES} bytes, the limit of Lambda's asynchronous calls; "
        "fix: put fewer models into one catalog, or leave some out of it and add them with `cohost push`"
    )
