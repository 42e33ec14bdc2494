"""Checks that find the faults of a model archive before an endpoint loads the archive."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .archive import server_name
from .errors import ArtifactError, Fault, shown
from .inventory import TEXT_BYTES, Member, take_inventory
from .model_checks import check_model
from .property_checks import check_properties, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Fault", "startup_faults", "verify", "verify_bundle"]

_PROPERTIES = "serving.properties"
_HEAD_BYTES = 64
_PACK_BUNDLE = "pack it with `tar -czf models.tar.gz -C folder model-1 model-2`"
_PACK = "pack it with `tar -czf model.tar.gz -C folder .`"


def verify(path: Path) -> list[Fault]:
    """Return every fault of an archive of one model; an archive without faults can be loaded by a multi-model endpoint.

    The file may be hostile: no file is extracted, memory and time are bounded, and names are escaped in messages.
    Weights are not read into memory.
    """
    members, faults = _readable(path, _PACK)
    if not members:
        return faults
    root, layout_faults = _find_root(members)
    files = {
        member.name.removeprefix(root): member
        for member in members
        if member.kind == "file" and member.name.startswith(root)
    }
    return [*faults, *layout_faults, *_check_contents(files)]


def _readable(path: Path, pack: str) -> tuple[Sequence[Member], list[Fault]]:
    """Return an archive's members, and the faults of its tar and gzip structure.

    The members are empty if a fault prevents further checks.
    """
    inventory = take_inventory(path)
    faults = [inventory.fault] if inventory.fault else []
    if not inventory.members:
        return (), faults or [Fault("no-files", "the archive holds nothing", pack)]
    faults += _check_members(inventory.members)
    # After a fault, files that seem to be missing may lie behind the point where reading ended.
    return (() if inventory.fault else inventory.members), faults


def verify_bundle(path: Path) -> list[Fault]:
    """Return every fault of a bundle, an archive with one folder per model.

    If no fault is found, a server can start with all models of the bundle. Memory and time are bounded as in `verify`.
    Each message names the model's folder.
    """
    members, faults = _readable(path, _PACK_BUNDLE)
    if not members:
        return faults
    files = {member.name: member for member in members if member.kind == "file"}
    if stray := [name for name in files if "/" not in name and not name.startswith(".")]:
        message = (
            f"plain files at the root: {shown(stray)}; with one of them the server takes all folders for one model"
        )
        faults.append(Fault("stray-file", message, "pack folders only"))
    folders: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    for name, member in files.items():
        folder, slash, rest = name.partition("/")
        if slash:
            folders[folder][rest] = member
    faults += _same_names(folders)
    for folder, held in sorted(folders.items()):
        faults += [replace(fault, message=f"{folder}: {fault.message}") for fault in _check_folder(held)]
    return faults


def _same_names(folders: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault per model name that several folders get, because DJL Serving 0.36.0 ends then (recording 29)."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for folder in sorted(folders):
        named[server_name(folder)].append(folder)
    for name, same in named.items():
        if len(same) > 1:
            message = f"the server serves the folders {shown(same)} all as {name!r}, and ends at its start"
            yield Fault("same-name", message, "give them names that differ in letters or digits")


def _check_folder(files: Mapping[str, Member]) -> Iterator[Fault]:
    if _PROPERTIES not in files:
        fix = "write one (`cohost render` shows how), or leave the folder out"
        yield Fault("no-serving-properties", "there is no serving.properties", fix)
    yield from _check_contents(files)


def startup_faults(models: Mapping[str, Mapping[str, bytes]]) -> Iterator[ArtifactError]:
    """Yield one error per fault that would keep a server from starting with these models (files by model name).

    A model that fails to load at start-up ends the server with all its models (DJL Serving 0.36.0, recording 15).
    """
    for model, files in models.items():
        for fault in _check_contents({name: _in_memory(name, data) for name, data in files.items()}):
            if fault.severity == "error":
                yield ArtifactError(fault.code, f"models.{model}", fault.message, fix=fault.fix)


def _in_memory(name: str, data: bytes) -> Member:
    return Member(name=name, kind="file", size=len(data), head=data[:_HEAD_BYTES], text=data)


def _check_members(members: Sequence[Member]) -> Iterator[Fault]:
    absolute = [member.name for member in members if member.name.startswith("/")]
    if absolute:
        yield Fault("absolute-path", f"absolute paths: {shown(absolute)}; they are not extracted", _PACK)
    outside = [member.name for member in members if ".." in member.name.split("/")]
    if outside:
        yield Fault("parent-path", f"paths with '..': {shown(outside)}; they are not extracted", _PACK)
    links = [member.name for member in members if member.kind == "link"]
    if links:
        yield Fault(
            "link",
            f"links instead of files: {shown(links)}; SageMaker refuses them, or their targets are not there",
            "pack with `tar -h`, which follows links; a Hub cache is made of links",
        )
    special = [member.name for member in members if member.kind == "special"]
    if special:
        yield Fault("special-file", f"devices, pipes or sparse files: {shown(special)}", "pack regular files only")
    counts = Counter(member.name for member in members if member.kind != "folder")
    if repeated := [name for name, times in counts.items() if times > 1]:
        yield Fault(
            "duplicate-member", f"packed more than once: {shown(repeated)}; the last one counts", "pack it again"
        )
    if odd := [member.name for member in members if "\\" in member.name or not member.name.isprintable()]:
        yield Fault("bad-name", f"names with backslashes or unprintable characters: {shown(odd)}", "rename the files")


def _find_root(members: Sequence[Member]) -> tuple[str, list[Fault]]:
    """Return the folder of an archive that has the serving.properties, and the faults of this folder's position.

    The folder ends with "/"; it is "" for the archive's root, the only correct location.
    """
    homes = sorted(
        {
            member.name.removesuffix(_PROPERTIES)
            for member in members
            if f"/{member.name}".endswith(f"/{_PROPERTIES}") and not member.name.startswith(("/", "../"))
        },
        key=lambda home: (home.count("/"), home),
    )
    if not homes:
        message = "there is no serving.properties"
        return "", [Fault("no-serving-properties", message, "write one (`cohost render` shows how) and pack it again")]
    if homes[0] == "":
        return "", []
    if len(homes) > 1:
        message = f"{len(homes)} folders hold a serving.properties ({shown(homes)}); an archive holds one model"
        return homes[0], [Fault("nested", message, "pack each by itself, files at the root, or check it as --bundle")]
    folder = homes[0].rstrip("/")
    fix = f"pack it with `tar -czf model.tar.gz -C {folder} .`" if folder.isalnum() else _PACK
    return homes[0], [Fault("nested", f"the files lie in the folder {folder!a} instead of at the root", fix)]


def _check_contents(files: Mapping[str, Member]) -> Iterator[Fault]:
    properties: dict[str, str] = {}
    written = files.get(_PROPERTIES)
    if written is not None and written.size > TEXT_BYTES:
        yield Fault("properties-malformed", f"serving.properties is over {TEXT_BYTES} bytes long", "write a new one")
    elif written is not None and written.text is not None:
        properties, faults = parse(written.text)
        yield from faults
        yield from check_properties(properties, files)
    yield from check_model(files, properties)
    requirements = files.get("requirements.txt")
    if requirements is not None and requirements.size <= TEXT_BYTES:
        yield from _check_requirements(requirements.text or b"")


def _check_requirements(text: bytes) -> Iterator[Fault]:
    lines = [line.strip() for line in text.splitlines()]
    if not any(line and not line.startswith(b"#") for line in lines):
        yield Fault("requirements-empty", "requirements.txt names no package", "add one or remove the file", "warning")
