"""Choose the files of a model's repository that are uploaded to S3, and check them.

Before the upload, the chosen files must form a complete model that fits the task in the catalog.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cohost.archives.errors import Fault, GatheredError, shown
from cohost.archives.inventory import TEXT_BYTES, Member
from cohost.archives.model_checks import check_model, weights_in
from cohost.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path


SAFETENSORS: Final = "safetensors"
PICKLE: Final = "PyTorch"
CODE: Final = "code"

# Files with configuration, tokenizers, chat templates and the index of the weights' shards.
_TEXTS: Final = re.compile(r"[\w.-]+\.(json|txt|model|tiktoken|jinja|codes|bpe)")
# Folders of sentence-transformers' modules, such as 1_Pooling. Other folders hold the same model for other runtimes.
_MODULE: Final = re.compile(r"\d+_\w+")
_CODE: Final = re.compile(r"[\w-]+\.py")
_INDEX: Final = ".index.json"
_DEEPEST: Final = 2


def choose(names: Iterable[str], *, allow_pickle: bool, with_code: bool) -> list[str]:
    """Return the sorted names of the files to fetch and upload: text files, and weights in one format.

    Safetensors are preferred. Loading a pickle runs code in it, so pickles are chosen only if there are no safetensors
    and `allow_pickle` is set. Without safetensors and without `allow_pickle`, no weights are chosen. Python files are
    chosen if `with_code` is set, for models whose repository contains its own code.
    """
    listed = sorted(names)
    formats = weights_in(listed)
    kind = SAFETENSORS if SAFETENSORS in formats else PICKLE if allow_pickle else None
    weights = formats.get(kind, []) if kind else []
    return sorted({*weights, *(name for name in listed if _serves(name, kind, with_code=with_code))})


def kinds_in(names: Collection[str]) -> set[str]:
    """Return the kinds of files in `names`: the formats of the weights, and CODE if there are Python files."""
    return {*weights_in(names), *(CODE for name in names if _CODE.fullmatch(name))}


def still_chosen(kinds: Collection[str], *, allow_pickle: bool, with_code: bool) -> bool:
    """Return True if `choose`, with these settings, would certainly choose the files of an upload of these kinds again.

    The repository is not read, so the result is also False if only the repository's list of files could decide. Without
    `with_code`, uploaded Python files do not make the result False, because they are never run.
    """
    return (allow_pickle or PICKLE not in kinds) and (CODE in kinds or not with_code)


def files_below(folder: Path) -> dict[str, Path]:
    """Return the files of a model's folder and of its direct subfolders, by their relative paths.

    Hidden files are left out; symbolic links are resolved.
    """
    found = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file()]
    paths = {path.relative_to(folder).as_posix(): path.resolve() for path in found}
    return {name: path for name, path in sorted(paths.items()) if not name.startswith(".")}


def _serves(name: str, kind: str | None, *, with_code: bool) -> bool:
    *folders, file = name.split("/")
    if len(folders) >= _DEEPEST or (folders and not _MODULE.fullmatch(folders[0])):
        return False
    if with_code and not folders and _CODE.fullmatch(file):
        return True
    if file.endswith(_INDEX):
        # The index of the shards of the format that was not chosen would name files that are not uploaded.
        return kind is not None and (kind == SAFETENSORS) == (".safetensors." in file)
    return bool(_TEXTS.fullmatch(file)) or (bool(folders) and kind in weights_in([file]))


class FaultyModelError(GatheredError, WeightsError):
    """The error that lists all faults of a model's files."""


_HEAD_BYTES: Final = 64
_LENGTH_BYTES: Final = 8
_TEXT_ENDINGS: Final = (".json", ".txt")


def faults_of(files: Mapping[str, Path], chosen: Mapping[str, Path], *, task: str) -> list[Fault]:
    """Return the faults of a model. `files` are all files of the model's folder, `chosen` the files to be uploaded."""
    if fault := pickle_fault(files, chosen):
        return [fault]
    members = {name: _member(name, path) for name, path in chosen.items()}
    found = list(check_model(members, {"option.task": task}))
    # If the weights are a Git LFS pointer or an empty file, that is reported already, so sizes are not checked.
    reported = {fault.code for fault in found} & {"lfs-pointer", "empty-weights"}
    return found if reported else [*found, *_incomplete(chosen)]


def pickle_fault(names: Iterable[str], chosen: Iterable[str]) -> Fault | None:
    """Return the fault of a model whose only weights are pickles that were not chosen; None for any other model."""
    pickles = weights_in(names).get(PICKLE, [])
    if not pickles or weights_in(chosen):
        return None
    return Fault(
        "pickle",
        f"the weights are there as pickles only ({shown(pickles)}), and loading one runs the code in it",
        "take a revision with safetensors, or set allow_pickle: true for the model if you trust its origin",
    )


def _incomplete(chosen: Mapping[str, Path]) -> Iterator[Fault]:
    for name in weights_in(chosen).get(SAFETENSORS, []):
        size, stated = chosen[name].stat().st_size, _stated_size(chosen[name])
        if stated != size:
            what = "has no readable header" if stated is None else f"should be {stated} bytes by its header"
            yield Fault("incomplete-weights", f"{name!a} is {size} bytes and {what}", "fetch the file again")


def _stated_size(path: Path) -> int | None:
    """Return the total size in bytes that a safetensors file should have by its header: length field, header, tensors.

    Return None if the header cannot be parsed.
    """
    from huggingface_hub import parse_local_safetensors_file_metadata
    from huggingface_hub.errors import SafetensorsParsingError

    try:
        tensors = parse_local_safetensors_file_metadata(path).tensors.values()
        end = max((int(tensor.data_offsets[1]) for tensor in tensors), default=0)
    # The library checks neither that the header is an object nor that offsets are numbers.
    except (SafetensorsParsingError, AttributeError, IndexError, TypeError, ValueError):
        return None
    with path.open("rb") as file:
        return _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little") + end


def _member(name: str, path: Path) -> Member:
    size = path.stat().st_size
    with path.open("rb") as file:
        is_text = name.endswith(_TEXT_ENDINGS) and size <= TEXT_BYTES
        content = file.read(size if is_text else _HEAD_BYTES)
    return Member(name=name, kind="file", size=size, head=content[:_HEAD_BYTES], text=content if is_text else None)
