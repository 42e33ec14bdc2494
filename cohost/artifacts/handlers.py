"""The handler code that travels in archives. It lies beside this folder, here and in the Lambda function's code."""

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
"""The deaths of a model's process that the server makes good, over the model's life, before it gives the model up.

The next one turns /ping to 500, and SageMaker replaces the instance, with all of its models (decision 9).
"""

_FOLDERS: Mapping[str, Path] = {BATCHED: Path(__file__).parent.parent / "handler"}


@cache
def handler_files(name: str) -> Mapping[str, bytes]:
    """The files that a handler adds to an archive's root, by name.

    Raises:
        ArtifactError: there is no handler of that name, or its code is not where it must be.
    """
    if name not in _FOLDERS:
        raise ArtifactError(f"handler {name!r}: is unknown; allowed are {', '.join(_FOLDERS)}; name one of these")
    # The folder is a package in this project only; in an archive its files are neighbours.
    files = {path.name: path.read_bytes() for path in sorted(_FOLDERS[name].glob("*.py")) if path.stem != "__init__"}
    if ENTRY_POINT not in files:
        raise ArtifactError(
            f"handler {name!r}: {_FOLDERS[name] / ENTRY_POINT} is missing; deploy from a whole checkout"
        )
    return files


def handler_version(name: str) -> str:
    """What tells one state of a handler's code from another: the first 12 hex digits of its content digest.

    Raises:
        ArtifactError: as `handler_files`.
    """
    return content_digest(handler_files(name))[:DIGEST_CHARACTERS]
