"""Is a folder of Hugging Face files a whole model that fits its task? Asked before anything is uploaded."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

from cohost.artifacts.fault import Fault, shown
from cohost.artifacts.inventory import TEXT_BYTES, Member
from cohost.artifacts.model_checks import check_model, weights_in
from cohost.weights.choice import PICKLE, SAFETENSORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_HEAD_BYTES: Final = 64
_LENGTH_BYTES: Final = 8
_LONGEST_HEADER: Final = 100_000_000
"""The limit that safetensors itself sets."""
_TEXT_ENDINGS: Final = (".json", ".txt")


def faults_of(files: Mapping[str, Path], chosen: Mapping[str, Path], *, task: str) -> list[Fault]:
    """The faults of a model: `files` are all that its folder holds, `chosen` those that would be uploaded."""
    if fault := pickle_fault(files, chosen):
        return [fault]
    members = {name: _member(name, path) for name, path in chosen.items()}
    found = list(check_model(members, {"option.task": task}))
    # A file that is another thing altogether has its fault already.
    told = {fault.code for fault in found} & {"lfs-pointer", "empty-weights"}
    return found if told else [*found, *_incomplete(chosen)]


def pickle_fault(names: Iterable[str], chosen: Iterable[str]) -> Fault | None:
    """The fault of a model that has pickles and nothing that could be uploaded instead; None for any other."""
    pickles = weights_in(names).get(PICKLE, [])
    if not pickles or weights_in(chosen):
        return None
    return Fault(
        "pickle",
        f"the weights are there as pickles only ({shown(pickles)}), and loading one runs whatever code it holds",
        "take a revision with safetensors, or set allow_pickle: true for the model if you trust its origin",
    )


def _incomplete(chosen: Mapping[str, Path]) -> Iterator[Fault]:
    for name in weights_in(chosen).get(SAFETENSORS, []):
        size, stated = chosen[name].stat().st_size, _stated_size(chosen[name])
        if stated != size:
            what = "has no readable header" if stated is None else f"should be {stated} bytes by its header"
            yield Fault("incomplete-weights", f"{name!a} is {size} bytes and {what}", "fetch the file again")


def _stated_size(path: Path) -> int | None:
    """How long a safetensors file says it is: the header's length, the header, and the last tensor's end."""
    with path.open("rb") as file:
        prefix = file.read(_LENGTH_BYTES)
        if len(prefix) < _LENGTH_BYTES:
            return None
        (length,) = struct.unpack("<Q", prefix)
        header = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        tensors = {name: facts for name, facts in json.loads(header).items() if name != "__metadata__"}
        end = max((int(facts["data_offsets"][1]) for facts in tensors.values()), default=0)
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return None
    return _LENGTH_BYTES + int(length) + end


def _member(name: str, path: Path) -> Member:
    size = path.stat().st_size
    with path.open("rb") as file:
        is_text = name.endswith(_TEXT_ENDINGS) and size <= TEXT_BYTES
        content = file.read(size if is_text else _HEAD_BYTES)
    return Member(name=name, kind="file", size=size, head=content[:_HEAD_BYTES], text=content if is_text else None)
