"""Where a model's weights lie: option.model_id as a path, a model of the local hub, or an s3:// prefix."""

from __future__ import annotations

import contextlib
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local_aws.hub import HubError
from local_aws.lmi.faults import EngineFailure

if TYPE_CHECKING:
    from local_aws.hub import Hub
    from local_aws.lmi.archive import Download
    from local_aws.lmi.model_settings import ModelSettings

HUB_CACHE: Final = "huggingface"
"""The folder below a container's own that its workers take for the cache of the Hugging Face Hub (HF_HUB_CACHE)."""

_MAIN = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNKNOWN_COMMIT = "0" * 40


def with_local_weights(
    settings: ModelSettings, *, model_dir: Path, hub: Hub, cache: Path, download: Download
) -> ModelSettings:
    """Put a model's weights where its workers look for them, and return the settings that say so.

    As on the real server, a handler reads the folder of weights that came from S3 as `model_id`, and the id of a model
    of the Hub as it stands, in the first call as in serving.properties. A model of the Hub is found in the workers'
    cache, as if it had been fetched before. A path that does not exist is left as it is: the worker then fails as the
    real one does.

    Raises:
        EngineFailure: the hub does not hold the model in that revision, or S3 does not give it.
    """
    model_id = settings.properties.get("model_id")
    if not model_id or Path(model_id).is_absolute():
        return settings
    if model_id.startswith("s3://"):
        return _with_folder(settings, download(model_id, Path(tempfile.mkdtemp(dir=cache))))
    if (model_dir / model_id).is_dir():
        return _with_folder(settings, model_dir / model_id)
    revision = settings.properties.get("revision")
    try:
        folder = hub.resolve(model_id, revision)
    except HubError as error:
        raise EngineFailure(f"Failed to initialize model: {error}") from error
    _link(folder, cache / HUB_CACHE, model_id, revision or _MAIN)
    return settings


def _with_folder(settings: ModelSettings, folder: Path) -> ModelSettings:
    properties = {key: value for key, value in settings.properties.items() if key != "revision"}
    return replace(settings, properties=properties | {"model_id": str(folder)})


def _link(folder: Path, cache: Path, model_id: str, revision: str) -> None:
    """Make a folder of the hub a snapshot in a cache (huggingface_hub: "Manage huggingface_hub cache-system")."""
    repository = cache / f"models--{model_id.replace('/', '--')}"
    commit = revision if _COMMIT.fullmatch(revision) else _UNKNOWN_COMMIT
    snapshot, reference = repository / "snapshots" / commit, repository / "refs" / revision
    for place in (snapshot, reference):
        place.parent.mkdir(parents=True, exist_ok=True)
    # Another model of the container may be the same one of the hub.
    with contextlib.suppress(FileExistsError):
        snapshot.symlink_to(folder.resolve(), target_is_directory=True)
    if commit != revision:
        reference.write_text(commit, encoding="ascii")
