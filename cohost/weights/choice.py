"""Which files of a model's repository are served, and so go to S3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cohost.artifacts.model_checks import weights_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
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
    """The names to fetch and upload, sorted: texts, and weights in one format.

    Safetensors are preferred. Pickles are taken where there is nothing else and `allow_pickle` says so, because loading
    one runs code; without it, no weights are chosen. Python files are for models that need them (`with_code`).
    """
    listed = sorted(names)
    formats = weights_in(listed)
    kind = SAFETENSORS if SAFETENSORS in formats else PICKLE if allow_pickle else None
    weights = formats.get(kind, []) if kind else []
    return sorted({*weights, *(name for name in listed if _serves(name, kind, with_code=with_code))})


def kinds_in(names: Collection[str]) -> set[str]:
    """What decides whether other settings would have chosen other files: the weights' formats, and CODE where it is."""
    return {*weights_in(names), *(CODE for name in names if _CODE.fullmatch(name))}


def still_chosen(kinds: Collection[str], *, allow_pickle: bool, with_code: bool) -> bool:
    """Whether files of these kinds serve under these settings too, without a look at the whole repository.

    False also where only that look could tell. Code that is there and not asked for is no matter, since nothing runs
    it.
    """
    return (allow_pickle or PICKLE not in kinds) and (CODE in kinds or not with_code)


def files_below(folder: Path) -> dict[str, Path]:
    """The files of a model's folder by their path below it, hidden ones left out; links are followed."""
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
