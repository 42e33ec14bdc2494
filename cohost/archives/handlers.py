"""The handler code and the wheels that are packed into archives; both are part of the Lambda function's code."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .archive import content_digest
from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping


BATCHED = "batched"
SHARED = "shared"
ENGINE_HANDLERS = (BATCHED, SHARED)
"""The project's own handlers: the server starts a proxy process, and an engine process computes.

With `batched` each worker has an engine process of its own; with `shared` all models of a device have one together.
"""
ENTRY_POINT = "model.py"
DIGEST_CHARACTERS = 12
RETRY_THRESHOLD = 10
"""The number of times that DJL Serving restarts a model's process, over the model's life, before it gives up.

The next death of the process makes /ping answer 500, and SageMaker replaces the instance with all its models (decision
9).
"""

# Both handlers are the same code and hence have the same version; `option.shared` selects where a model's engine runs.
_FOLDERS: Mapping[str, Path] = dict.fromkeys(ENGINE_HANDLERS, Path(__file__).parent.parent / "handler")


@cache
def handler_files(name: str) -> Mapping[str, bytes]:
    """Return the files that a handler adds to an archive's root, by name.

    Raises:
        ArtifactError: the handler does not exist, or its code is missing.
    """
    if name not in _FOLDERS:
        raise ArtifactError(
            "handler-unknown", f"handler {name!r}", "is unknown", allowed=", ".join(_FOLDERS), fix="name one of these"
        )
    # The handler's folder is a package only in this project; in an archive its files lie side by side at the root.
    files = {path.name: path.read_bytes() for path in sorted(_FOLDERS[name].glob("*.py")) if path.stem != "__init__"}
    if ENTRY_POINT not in files:
        missing = _FOLDERS[name] / ENTRY_POINT
        raise ArtifactError(
            "handler-code-missing", f"handler {name!r}", f"{missing} is missing", fix="deploy from a whole checkout"
        )
    return files


def handler_version(name: str) -> str:
    """Return the version of a handler's code: the first 12 hex digits of the content digest of its files.

    Raises:
        ArtifactError: the handler does not exist, or its code is missing.
    """
    return content_digest(handler_files(name))[:DIGEST_CHARACTERS]


FOLDER = Path(__file__).parent.parent / "wheels"
"""The folder in the function's code to which the stack copies the wheels."""

_WHEEL = re.compile(r"([A-Za-z0-9_.!-]+\.whl)@([0-9a-f]{64})")


def wheel_reference(name: str, content: bytes) -> str:
    """Return a wheel's reference in a resource's properties: its file name, "@", and the SHA-256 of its content."""
    return f"{name}@{hashlib.sha256(content).hexdigest()}"


class Wheels:
    """The wheels of all models; each wheel is read once, and its bytes are shared by the models that need it."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, str]] = {}

    def files(self, model: str, references: str) -> dict[str, bytes]:
        """Return the content of a model's wheels by file name; `references` are separated by blanks.

        Raises:
            ArtifactError: a reference is malformed, or the function's code has no wheel of this name and content.
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
        name, expected = match.groups()
        content, digest = self._content(name)
        if digest != expected:
            raise ArtifactError(
                "code-of-another-checkout",
                f"Wheels.{model}",
                f"{name} is not in the function's code with this content",
                fix="deploy the stack from one checkout",
            )
        return name, content

    def _content(self, name: str) -> tuple[bytes, str]:
        """Return a wheel's content and the content's SHA-256; for a missing wheel, the content is empty."""
        if name not in self._contents:
            try:
                content = (FOLDER / name).read_bytes()
            except OSError:
                content = b""
            self._contents[name] = content, hashlib.sha256(content).hexdigest()
        return self._contents[name]
