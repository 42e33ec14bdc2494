"""Model sizes from Hugging Face files, without loading the model: config.json and the headers of safetensors files.

A safetensors file starts with the length of its header (8 bytes, little-endian) and the header, a JSON object with each
tensor's dtype, shape and offsets (safetensors' format description), so a few kilobytes give all sizes. Files on the Hub
are read by range requests, so that no weights are downloaded, and only when a user asks for it.
"""

from __future__ import annotations

import json
import math
import os
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from cohost.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
WEIGHTS_INDEX: Final = "model.safetensors.index.json"

_LENGTH_BYTES: Final = 8
_LONGEST_HEADER: Final = 100_000_000
"""The limit that safetensors itself sets."""

# Integer tensors are buffers such as position_ids; they stay as they are when a model is converted.
FLOAT_DTYPES: Final[Mapping[str, int]] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class ModelFiles(Protocol):
    """A reader for the files of one model, in any location."""

    @property
    def where(self) -> str:
        """Return the location as named in messages."""

    def read(self, name: str) -> bytes | None:
        """Return a whole file; None if there is no such file."""

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return `size` bytes from `start`, or fewer if the file ends before; None if there is no such file."""


class Folder:
    """A reader for model files in a local folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def where(self) -> str:
        """Return the folder."""
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        """Return a whole file; None if there is no such file."""
        path = self._path / name
        return path.read_bytes() if path.is_file() else None

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return `size` bytes from `start`, or fewer if the file ends before; None if there is no such file."""
        path = self._path / name
        if not path.is_file():
            return None
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)


def read_config(files: ModelFiles) -> dict[str, Any]:
    """Return the content of config.json.

    Raises:
        PlanError: there is none, or it is not a JSON object.
    """
    content = files.read(CONFIG)
    if content is None:
        raise PlanError(f"{files.where}: no {CONFIG}; allowed: a model as save_pretrained writes it; fix: check the id")
    return _json_object(content, f"{files.where}: {CONFIG}")


def count_elements(files: ModelFiles) -> dict[str, int]:
    """Return the number of floating-point elements by safetensors dtype, such as {"F16": 278811651}.

    Raises:
        PlanError: there are no weights in safetensors, or a header cannot be read.
    """
    counts: Counter[str] = Counter()
    for name in _weight_files(files):
        header = _read_header(files, name)
        for tensor, facts in header.items():
            if tensor != "__metadata__":
                dtype, shape = _dtype_and_shape(facts, f"{files.where}: {name}: {tensor}")
                if dtype in FLOAT_DTYPES:
                    counts[dtype] += math.prod(shape)
    return dict(sorted(counts.items()))


def _weight_files(files: ModelFiles) -> Iterable[str]:
    index = files.read(WEIGHTS_INDEX)
    if index is None:
        return [WEIGHTS]
    places = _json_object(index, f"{files.where}: {WEIGHTS_INDEX}").get("weight_map")
    if not isinstance(places, dict) or not places:
        raise PlanError(f"{files.where}: {WEIGHTS_INDEX} has no weight_map; fix: save the model again")
    return sorted(set(map(str, places.values())))


def _read_header(files: ModelFiles, name: str) -> dict[str, Any]:
    prefix = files.read_range(name, 0, _LENGTH_BYTES)
    if prefix is None:
        raise PlanError(
            f"{files.where}: no {name}; allowed: weights in safetensors, whose sizes can be read without loading them; "
            "fix: save the model with save_pretrained(..., safe_serialization=True)"
        )
    if len(prefix) < _LENGTH_BYTES:
        raise PlanError(f"{files.where}: {name} ends after {len(prefix)} bytes; fix: fetch the file again")
    (length,) = struct.unpack("<Q", prefix)
    if length > _LONGEST_HEADER:
        raise PlanError(f"{files.where}: {name} states a header of {length} bytes; fix: is it a safetensors file?")
    header = files.read_range(name, _LENGTH_BYTES, length)
    if header is None or len(header) < length:
        raise PlanError(f"{files.where}: {name} ends within its header; fix: fetch the file again")
    return _json_object(header, f"{files.where}: {name}: header")


def _dtype_and_shape(facts: object, where: str) -> tuple[str, list[int]]:
    match facts:
        case {"dtype": str(dtype), "shape": list(shape)} if all(type(size) is int and size >= 0 for size in shape):
            return dtype, shape
    raise PlanError(f"{where}: has no dtype and shape; fix: fetch the file again")


def _json_object(content: bytes, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise PlanError(f"{where} is no JSON ({error}); fix: fetch the file again") from error
    if not isinstance(parsed, dict):
        raise PlanError(f"{where} is no JSON object; fix: fetch the file again")
    return parsed


DEFAULT_HUB: Final = "https://huggingface.co"
_TIMEOUT_SECONDS: Final = 30
_NOT_FOUND: Final = 404
_DENIED: Final = frozenset({401, 403})


def hub_url() -> str:
    """Return the Hub's address: HF_ENDPOINT as in Hugging Face's own tools, else the public one."""
    return os.environ.get("HF_ENDPOINT", DEFAULT_HUB).rstrip("/")


class HubFiles:
    """A reader for one revision of a model on the Hub, at `<hub>/<id>/resolve/<revision>/`.

    Raises:
        PlanError: the Hub's address is not http or https.
    """

    def __init__(self, model_id: str, revision: str | None, *, hub: str | None = None) -> None:
        self._base = f"{hub or hub_url()}/{model_id}/resolve/{revision or 'main'}/"
        if not self._base.startswith(("https://", "http://")):
            raise PlanError(f"HF_ENDPOINT: {self._base!r} is no web address; allowed: https://…; fix: unset it")

    @property
    def where(self) -> str:
        """Return the URL of the model's files."""
        return self._base

    def read(self, name: str) -> bytes | None:
        """Return a whole file; None if there is no such file."""
        return self._get(name, {})

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return `size` bytes from `start`; None if there is no such file.

        A server that does not support ranges would send the whole file, of which only this part is used.
        """
        return self._get(name, {"Range": f"bytes={start}-{start + size - 1}"}, limit=start + size)

    def _get(self, name: str, headers: dict[str, str], *, limit: int | None = None) -> bytes | None:
        request = urllib.request.Request(self._base + urllib.parse.quote(name), headers=headers)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked
                if headers and answer.status != _PARTIAL:
                    return _part(answer.read(limit), headers["Range"])
                return bytes(answer.read(limit))
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise PlanError(_explain(self._base + name, error)) from error
        except OSError as error:
            raise PlanError(
                f"{self._base}{name}: cannot be reached ({error}); fix: check the network, or download the model and "
                "inspect the folder with --folder"
            ) from error


_PARTIAL: Final = 206


def _part(content: bytes, wanted: str) -> bytes:
    first = int(wanted.removeprefix("bytes=").partition("-")[0])
    return content[first:]


def _explain(address: str, error: urllib.error.HTTPError) -> str:
    if error.code in _DENIED:
        return (
            f"{address}: answered {error.code}, so the model is private, gated or not there; fix: check the id, or "
            "download it with your account and inspect the folder with --folder"
        )
    return f"{address}: answered {error.code} {error.reason}; fix: try again later"
