"""Where a model's weights lie: option.model_id as a path, a model of the local hub, or an s3:// prefix."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from local_aws.hub import HubError
from local_aws.lmi.faults import EngineFailure

if TYPE_CHECKING:
    from local_aws.hub import Hub
    from local_aws.lmi.archive import Download
    from local_aws.lmi.model_settings import ModelSettings


def with_local_weights(
    settings: ModelSettings, *, model_dir: Path, hub: Hub, cache: Path, download: Download
) -> ModelSettings:
    """The settings with `model_id` as a folder on this machine; a handler sees that folder, and no revision to fetch.

    A path that does not exist is left as it is: the worker then fails as the real one does.

    Raises:
        EngineFailure: the hub does not hold the model in that revision, or S3 does not give it.
    """
    model_id = settings.properties.get("model_id")
    if not model_id or Path(model_id).is_absolute():
        return settings
    folder = _find(settings, model_id, model_dir, hub, cache, download)
    properties = {key: value for key, value in settings.properties.items() if key != "revision"}
    return replace(settings, properties=properties | {"model_id": str(folder)})


def _find(settings: ModelSettings, model_id: str, model_dir: Path, hub: Hub, cache: Path, download: Download) -> Path:
    if model_id.startswith("s3://"):
        return download(model_id, Path(tempfile.mkdtemp(dir=cache)))
    if (model_dir / model_id).is_dir():
        return model_dir / model_id
    try:
        return hub.resolve(model_id, settings.properties.get("revision"))
    except HubError as error:
        raise EngineFailure(f"Failed to initialize model: {error}") from error
