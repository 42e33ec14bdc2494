"""Choice and check of the files of a model's repository that are uploaded to S3.

The check runs before the upload: the chosen files must be a whole model that fits its task.
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

# Configuration, tokenizers, templates and the names of shards.
_TEXTS: Final = re.compile(r"[\w.-]+\.(json|txt|model|tiktoken|jinja|codes|bpe)")
# Modules of sentence-transformers, such as 1_Pooling; other folders hold the same model for other runtimes.
_MODULE: Final = re.compile(r"\d+_\w+")
_CODE: Final = re.compile(r"[\w-]+\.py")
_INDEX: Final = ".index.json"
_DEEPEST: Final = 2


def choose(names: Iterable[str], *, allow_pickle: bool, with_code: bool) -> list[str]:
    """Return the names to fetch and upload, sorted: texts, and weights in one format.

    Safetensors are preferred. Pickles are taken only if there is nothing else and `allow_pickle` is set, because
    loading one runs code; without it, no weights are chosen. Python files are for models that need them (`with_code`).
    """
    listed = sorted(names)
    formats = weights_in(listed)
    kind = SAFETENSORS if SAFETENSORS in formats else PICKLE if allow_pickle else None
    weights = formats.get(kind, []) if kind else []
    return sorted({*weights, *(name for name in listed if _serves(name, kind, with_code=with_code))})


def kinds_in(names: Collection[str]) -> set[str]:
    """Return the formats of the weights, and CODE if there are Python files: the facts that `still_chosen` needs."""
    return {*weights_in(names), *(CODE for name in names if _CODE.fullmatch(name))}


def still_chosen(kinds: Collection[str], *, allow_pickle: bool, with_code: bool) -> bool:
    """Return True if files of these kinds also suit these settings, without reading the whole repository.

    Return False also if only the repository could show it. Python files without `with_code` are harmless, because they
    are never run.
    """
    return (allow_pickle or PICKLE not in kinds) and (CODE in kinds or not with_code)


def files_below(folder: Path) -> dict[str, Path]:
    """Return the files of a model's folder by their path below it, without hidden ones; links are followed."""
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
        # The index of another format's shards would point at files that are not uploaded.
        return kind is not None and (kind == SAFETENSORS) == (".safetensors." in file)
    return bool(_TEXTS.fullmatch(file)) or (bool(folders) and kind in weights_in([file]))


class FaultyModelError(GatheredError, WeightsError):
    """The files of a model have faults."""


_HEAD_BYTES: Final = 64
_LENGTH_BYTES: Final = 8
_TEXT_ENDINGS: Final = (".json", ".txt")


def faults_of(files: Mapping[str, Path], chosen: Mapping[str, Path], *, task: str) -> list[Fault]:
    """Return the faults of a model: `files` are all files of its folder, `chosen` those that would be uploaded."""
    if fault := pickle_fault(files, chosen):
        return [fault]
    members = {name: _member(name, path) for name, path in chosen.items()}
    found = list(check_model(members, {"option.task": task}))
    # A Git LFS pointer or an empty file is reported already, so its size is not checked.
    reported = {fault.code for fault in found} & {"lfs-pointer", "empty-weights"}
    return found if reported else [*found, *_incomplete(chosen)]


def pickle_fault(names: Iterable[str], chosen: Iterable[str]) -> Fault | None:
    """Return the fault of a model whose only weights are pickles that were not chosen; None for any other."""
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
    """Return the size that a safetensors file states (length field, header, tensors); None if that is unreadable."""
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
