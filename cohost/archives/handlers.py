"""The handler code that is packed into archives; it lies beside this folder, also in the Lambda function's code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .archive import content_digest
from .errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCHED = "batched"
ENTRY_POINT = "model.py"
DIGEST_CHARACTERS = 12
RETRY_THRESHOLD = 10
"""The number of times that the server restarts a model's process, over the model's life, before it gives up.

The next death turns /ping to 500, and SageMaker replaces the instance with all of its models (decision 9).
"""

_FOLDERS: Mapping[str, Path] = {BATCHED: Path(__file__).parent.parent / "handler"}


@cache
def handler_files(name: str) -> Mapping[str, bytes]:
    """Return the files that a handler adds to an archive's root, by name.

    Raises:
        ArtifactError: there is no handler of that name, or its code is missing.
    """
    if name not in _FOLDERS:
        raise ArtifactError(
            "handler-unknown", f"handler {name!r}", "is unknown", allowed=", ".join(_FOLDERS), fix="name one of these"
        )
    # The folder is a package only in this project; in an archive its files lie side by side.
    files = {path.name: path.read_bytes() for path in sorted(_FOLDERS[name].glob("*.py")) if path.stem != "__init__"}
    if ENTRY_POINT not in files:
        missing = _FOLDERS[name] / ENTRY_POINT
        raise ArtifactError(
            "handler-code-missing", f"handler {name!r}", f"{missing} is missing", fix="deploy from a whole checkout"
        )
    return files


def handler_version(name: str) -> str:
    """Return the version of a handler's code: the first 12 hex digits of its content digest.

    Raises:
        ArtifactError: as `handler_files`.
    """
    return content_digest(handler_files(name))[:DIGEST_CHARACTERS]
