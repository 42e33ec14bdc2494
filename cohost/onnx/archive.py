"""An exported model's archive and the note beside it that says what it is: read at synth, checked before an upload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from cohost.artifacts.properties import dumps
from cohost.onnx.errors import OnnxError
from cohost.onnx.handler_files import REQUIREMENTS, handler_files
from cohost.onnx.packing import sha256_of
from cohost.onnx.recipe import HANDLER
from cohost.routing import ARCHIVE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.catalog.sections.designs import Serving
    from cohost.onnx.recipe import Recipe

NOTE_SUFFIX: Final = ".json"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One exported model on this machine; `sha256` is that of the archive's bytes."""

    name: str
    file: Path
    sha256: str
    serving: Serving
    precision: str
    size: int


def archive_file(folder: Path, name: str) -> Path:
    """Where a model's archive lies in the folder of exports."""
    return folder / f"{name}{ARCHIVE_SUFFIX}"


def note_file(folder: Path, name: str) -> Path:
    """Where the note about a model's archive lies."""
    return folder / f"{name}{NOTE_SUFFIX}"


def members(model: Mapping[str, Path], properties: Mapping[str, str], serving: Serving) -> dict[str, bytes | Path]:
    """The members of an archive: the model's files, its properties, and for the handler its code and requirements."""
    files: dict[str, bytes | Path] = {**model, "serving.properties": dumps(properties).encode("ascii")}
    if serving == HANDLER:
        files |= handler_files()
        files["requirements.txt"] = "".join(f"{line}\n" for line in REQUIREMENTS).encode()
    return files


def find_archive(folder: Path, recipe: Recipe) -> Archive:
    """The archive of a model as the catalog is now.

    Raises:
        OnnxError: it is not there, was made from other settings, or is not the file that its note tells of.
    """
    note = _read_note(folder, recipe.name)
    fix = f"fix: cohost export-onnx {recipe.name} --out {folder}"
    file = archive_file(folder, recipe.name)
    wanted, found = recipe.as_data(note["serving"]), note["recipe"]
    if wanted != found:
        both = wanted.keys() & found.keys()
        key = next(key for key in wanted | found if key not in both or wanted[key] != found[key])
        raise OnnxError(
            f"{file}: was exported with another {key} ({found.get(key)!r}, now {wanted.get(key)!r}); allowed: an "
            f"export of the catalog as it is; {fix}"
        )
    if not file.is_file() or sha256_of(file) != note["sha256"]:
        raise OnnxError(f"{file}: is not the archive that {note_file(folder, recipe.name).name} tells of; {fix}")
    return Archive(
        name=recipe.name,
        file=file,
        sha256=note["sha256"],
        serving=note["serving"],
        precision=recipe.precision,
        size=file.stat().st_size,
    )


def _read_note(folder: Path, name: str) -> Mapping[str, Any]:
    file = note_file(folder, name)
    fix = f"fix: cohost export-onnx {name} --out {folder}"
    try:
        note: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise OnnxError(f"{file}: cannot be read ({error.strerror}), so {name} is not exported yet; {fix}") from error
    except ValueError as error:
        raise OnnxError(f"{file}: is no JSON ({error}); {fix}") from error
    if not _is_note(note):
        raise OnnxError(f"{file}: tells neither recipe nor checksum; allowed: what export-onnx writes; {fix}")
    return note


def _is_note(data: object) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(data, dict) or not {"recipe", "serving", "sha256"} <= data.keys():
        return False
    return isinstance(data["recipe"], dict)
