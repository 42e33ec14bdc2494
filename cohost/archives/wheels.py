"""Wheels that are packed into archives; in the Lambda function's code they lie in a folder beside this one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from .errors import ArtifactError

FOLDER = Path(__file__).parent.parent / "wheels"
"""The folder in the function's code to which the stack copies them."""

_WHEEL = re.compile(r"([A-Za-z0-9_.!-]+\.whl)@([0-9a-f]{64})")


def wheel_reference(name: str, content: bytes) -> str:
    """Return a wheel's name in a resource's properties: the file name and the SHA-256 of its content."""
    return f"{name}@{hashlib.sha256(content).hexdigest()}"


class Wheels:
    """The wheels of all models, each read once; models that name the same one share its bytes."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, str]] = {}

    def files(self, model: str, references: str) -> dict[str, bytes]:
        """Return the content of a model's wheels by file name; `references` are separated by blanks.

        Raises:
            ArtifactError: a reference is malformed, or its file is not in the function's code or has another content.
        """
        return dict(self._file(model, reference) for reference in references.split())

    def _file(self, model: str, reference: str) -> tuple[str, bytes]:
        match = _WHEEL.fullmatch(reference)
        if not match:
            raise ArtifactError(
                "wheel-reference",
                f"Wheels.{model}",
                f"got {reference!a}",
                allowed="file.whl@sha256",
                fix="deploy the stack again",
            )
        name, wanted = match.groups()
        content, digest = self._content(name)
        if digest != wanted:
            raise ArtifactError(
                "code-of-another-checkout",
                f"Wheels.{model}",
                f"{name} is not in the function's code with this content",
                fix="deploy the stack from one checkout",
            )
        return name, content

    def _content(self, name: str) -> tuple[bytes, str]:
        """Return a wheel's content and its SHA-256; a missing wheel counts as empty."""
        if name not in self._contents:
            try:
                content = (FOLDER / name).read_bytes()
            except OSError:
                content = b""
            self._contents[name] = content, hashlib.sha256(content).hexdigest()
        return self._contents[name]
