"""The code of the function that publishes archives: the folders `artifacts` and `handler`, and wheels of models."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

import cohost.artifacts
from cohost.artifacts.wheels import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The sources alone, so that compiled files never change the asset.
_ROOT: Final = Path(cohost.artifacts.__file__).parent.parent
_FOLDERS: Final = ("artifacts", "handler")
_EXCLUDES: Final = ("*", *(line for name in _FOLDERS for line in (f"!{name}", f"!{name}/*.py")))


@contextmanager
def publisher_code(wheels: Mapping[str, bytes]) -> Iterator[lambda_.Code]:
    """The function's code, for a function made inside the context; `wheels` are contents by file name."""
    if not wheels:
        yield lambda_.Code.from_asset(str(_ROOT), exclude=list(_EXCLUDES), ignore_mode=cdk.IgnoreMode.GIT)
        return
    # CDK takes one folder, and copies it when the function is made.
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), {f"{FOLDER.name}/{name}": content for name, content in wheels.items()})
        sources = (file for name in _FOLDERS for file in sorted((_ROOT / name).glob("*.py")))
        _write(Path(folder), {str(file.relative_to(_ROOT)): file.read_bytes() for file in sources})
        yield lambda_.Code.from_asset(folder)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
