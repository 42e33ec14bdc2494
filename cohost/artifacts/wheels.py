"""Wheels that travel in archives. In the function that publishes they lie in a folder beside this one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from .errors import ArtifactError

FOLDER = Path(__file__).parent.parent / "wheels"
"""Where the stack puts them in the function's code."""

_WHEEL = re.compile(r"([A-Za-z0-9_.!-]+\.whl)@([0-9a-f]{64})")


def wheel_reference(name: str, content: bytes) -> str:
    """A wheel as a resource's properties name it: the file and the SHA-256 of what is in it."""
    return f"{name}@{hashlib.sha256(content).hexdigest()}"


def wheel_files(model: str, references: str) -> dict[str, bytes]:
    """The content of a model's wheels by file name; `references` are separated by blanks.

    Raises:
        ArtifactError: a reference is malformed, or its file is not in the function's code or has another content.
    """
    return dict(_file(model, reference) for reference in references.split())


def _file(model: str, reference: str) -> tuple[str, bytes]:
    match = _WHEEL.fullmatch(reference)
    if not match:
        raise ArtifactError(f"Wheels.{model}: is {reference!a}; allowed is file.whl@sha256; deploy the stack again")
    name, digest = match.groups()
    try:
        content = (FOLDER / name).read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise ArtifactError(
            f"Wheels.{model}: {name} is not in the function's code with this content; deploy from one checkout"
        )
    return name, content
