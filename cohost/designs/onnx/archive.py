"""The archives of exported models, each with a JSON file that describes it (its note); `cdk synth` reads both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cohost.archives.archive import archive_pieces, replacing
from cohost.archives.properties import dumps
from cohost.designs.onnx.recipe import HANDLER, REQUIREMENTS, handler_files
from cohost.errors import OnnxError
from cohost.routing import ARCHIVE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cohost.catalog.sections.designs import Serving
    from cohost.designs.onnx.recipe import Recipe


# The fastest level of gzip, since weights hardly shrink: it takes a tenth of the best level's time, for a file a few
# percent larger.
_LEVEL: Final = 1


def pack_files(files: Mapping[str, bytes | Path], target: Path) -> str:
    """Write an archive atomically, and return its SHA-256 (64 hex digits).

    Args:
        files: the content of each member, or a file with the content, by member name.
        target: the path of the archive; its folder is created.

    Raises:
        ArtifactError: a member name is neither `file` nor `folder/file`.
        OnnxError: the archive cannot be written, for example because the disk is full; no partial file is left.
    """
    digest = hashlib.sha256()
    try:
        with replacing(target) as file:
            for piece in archive_pieces(files, _LEVEL):
                digest.update(piece)
                file.write(piece)
    except OSError as error:
        raise OnnxError(
            "export-unwritable",
            str(target),
            f"cannot be written ({error.strerror or error})",
            fix="make room or choose another folder",
        ) from error
    return digest.hexdigest()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


NOTE_SUFFIX: Final = ".json"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The archive of one exported model on this machine; `sha256` is the SHA-256 of the archive's bytes."""

    name: str
    file: Path
    sha256: str


def archive_file(folder: Path, name: str) -> Path:
    """Return the path of a model's archive in `folder`, which holds the exports."""
    return folder / f"{name}{ARCHIVE_SUFFIX}"


def note_file(folder: Path, name: str) -> Path:
    """Return the path of the note, the JSON file that describes a model's archive."""
    return folder / f"{name}{NOTE_SUFFIX}"


def members(model: Mapping[str, Path], properties: Mapping[str, str], serving: Serving) -> dict[str, bytes | Path]:
    """Return an archive's members: the model's files, serving.properties and, if `serving` is "handler", its code."""
    files: dict[str, bytes | Path] = {**model, "serving.properties": dumps(properties).encode("ascii")}
    if serving == HANDLER:
        files |= handler_files()
        files["requirements.txt"] = "".join(f"{line}\n" for line in REQUIREMENTS).encode()
    return files


def find_archive(folder: Path, recipe: Recipe) -> Archive:
    """Return a model's archive, after checking that it was exported with the catalog's present settings.

    Raises:
        OnnxError: the archive is missing, was exported with other settings, or is not the file that its note describes.
    """
    fix = f"cohost export-onnx {recipe.name} --out {folder}"
    note = _read_note(folder, recipe.name, fix)
    file = archive_file(folder, recipe.name)
    wanted, found = recipe.as_data(note["serving"]), note["recipe"]
    if wanted != found:
        both = wanted.keys() & found.keys()
        key = next(key for key in wanted | found if key not in both or wanted[key] != found[key])
        raise OnnxError(
            "export-outdated",
            str(file),
            f"was exported with another {key} ({found.get(key)!r}, now {wanted.get(key)!r})",
            allowed="an export with the catalog's present settings",
            fix=fix,
        )
    if not file.is_file() or sha256_of(file) != note["sha256"]:
        raise OnnxError(
            "export-changed",
            str(file),
            f"is not the archive that {note_file(folder, recipe.name).name} describes",
            fix=fix,
        )
    return Archive(name=recipe.name, file=file, sha256=note["sha256"])


def _read_note(folder: Path, name: str, fix: str) -> dict[str, Any]:
    file = note_file(folder, name)
    try:
        note: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise OnnxError(
            "export-missing", str(file), f"cannot be read ({error.strerror}), so {name} is not exported yet", fix=fix
        ) from error
    except ValueError as error:
        raise OnnxError("export-note-invalid", str(file), f"is not JSON ({error})", fix=fix) from error
    match note:
        case {"recipe": dict(), "serving": str(), "sha256": str()}:
            return dict(note)
    raise OnnxError(
        "export-note-invalid",
        str(file),
        "has no recipe, serving and sha256",
        allowed="what export-onnx writes",
        fix=fix,
    )
