"""Read a model's sizes from its config.json and the headers of its safetensors files, without loading the model.

Hugging Face's own client reads the headers. Headers on the Hub are read by range requests, so that no weights are
downloaded, and only when a user requests it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from cohost.errors import PlanError
from cohost.hub import client, explaining, hub_url, read_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from huggingface_hub.utils._safetensors import SafetensorsRepoMetadata, TensorInfo


CONFIG: Final = "config.json"

# Integer tensors are buffers such as position_ids; a conversion of the dtype does not change them.
FLOAT_DTYPES: Final[Mapping[str, int]] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class Folder:
    """A reader for model files in a local folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def where(self) -> str:
        """Return the folder's path."""
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        """Return the content of one of the model's files; None if the model has no such file."""
        path = self._path / name
        return path.read_bytes() if path.is_file() else None

    def headers(self) -> SafetensorsRepoMetadata:
        """Return the headers of the model's only safetensors file, or of all files that the index names."""
        from huggingface_hub import get_local_safetensors_metadata

        return get_local_safetensors_metadata(self._path)


class HubFiles:
    """A reader for the files of a model's revision on the Hub, without a token, at `<hub>/<id>/resolve/<revision>/`.

    Every method raises HubAccessError if the Hub refuses or cannot be reached.
    """

    def __init__(self, model_id: str, revision: str | None) -> None:
        self._model_id = model_id
        self._revision = revision

    @property
    def where(self) -> str:
        """Return the base URL of the model's files at the revision."""
        return f"{hub_url()}/{self._model_id}/resolve/{self._revision or 'main'}/"

    def read(self, name: str) -> bytes | None:
        """Return the content of one of the model's files; None if the model has no such file."""
        with self._explaining():
            return read_file(self._model_id, self._revision, name)

    def headers(self) -> SafetensorsRepoMetadata:
        """Return the headers of the model's safetensors files."""
        with self._explaining():
            return client(token=False).get_safetensors_metadata(self._model_id, revision=self._revision)

    def _explaining(self) -> AbstractContextManager[None]:
        return explaining(self.where, folder="--folder")


ModelFiles = Folder | HubFiles


def read_config(files: ModelFiles) -> dict[str, Any]:
    """Return the content of a model's config.json.

    Raises:
        PlanError: config.json is missing or is not a JSON object.
    """
    content = files.read(CONFIG)
    if content is None:
        raise PlanError(
            "config-missing",
            f"{files.where}: {CONFIG}",
            "is missing",
            allowed="a model as save_pretrained writes it",
            fix="check the model's id or folder",
        )
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise PlanError(
            "config-invalid", f"{files.where}: {CONFIG}", f"is not JSON ({error})", fix="fetch the file again"
        ) from error
    if not isinstance(parsed, dict):
        raise PlanError(
            "config-invalid", f"{files.where}: {CONFIG}", "is not a JSON object", fix="fetch the file again"
        )
    return parsed


def count_elements(files: ModelFiles) -> dict[str, int]:
    """Return the number of floating-point weights of a model by safetensors dtype, such as {"F16": 278811651}.

    Raises:
        PlanError: the model has no weights in safetensors, or a header cannot be read.
    """
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    counts: Counter[str] = Counter()
    try:
        for file in files.headers().files_metadata.values():
            for tensor in file.tensors.values():
                counts[tensor.dtype] += _elements(tensor)
    except NotASafetensorsRepoError:
        counts.clear()
    # The client does not check that an index or a header is an object, and a file of the index may be missing.
    except (SafetensorsParsingError, OSError, AttributeError, TypeError, ValueError) as error:
        raise PlanError(
            "weights-damaged", files.where, f"its weights cannot be read ({error})", fix="fetch the model's files again"
        ) from error
    floats = {dtype: counts[dtype] for dtype in sorted(FLOAT_DTYPES.keys() & counts.keys())}
    if not floats:
        raise PlanError(
            "weights-missing",
            files.where,
            "has no weights in safetensors",
            allowed="weights whose sizes can be read without loading them",
            fix="save the model with save_pretrained(..., safe_serialization=True)",
        )
    return floats


def _elements(tensor: TensorInfo) -> int:
    """Return the number of elements of a tensor.

    Hugging Face's client counts the elements, but does not check that the shape in the header is a list of
    integers.

    Raises:
        ValueError: a size in the shape is not a whole number of 0 or more.
    """
    if not all(type(size) is int and size >= 0 for size in tensor.shape):
        raise ValueError(f"a tensor has the shape {tensor.shape!r}")
    return tensor.parameter_count
