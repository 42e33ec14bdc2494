"""A catalog's models as folders that a server can load, and the requests that load them."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from cohost.artifacts.archive import model_files
from cohost.images import parse_image
from cohost.load_failures import read_log, says_nothing
from cohost.render import code_of, properties_of, requirements_for
from local_aws.hub import Hub, HubError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cohost.catalog import Catalog
    from local_aws.engines.engine import Engine, Setup
    from local_aws.engines.report import Server

_LOAD_TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What came of one load: `fault` is None where the model was loaded, else the server's status and message."""

    name: str
    seconds: float
    fault: str | None


def local_weights(catalog: Catalog, hubs: Sequence[Path]) -> dict[str, Path]:
    """The folders of those models whose weights lie on this machine, by model name; the others come from the Hub."""
    hub, found = Hub(hubs), {}
    for name, entry in catalog.models.items():
        with contextlib.suppress(HubError):
            found[name] = hub.resolve(entry.model_id, entry.revision).resolve()
    return found


def write_models(catalog: Catalog, engine: Engine, setup: Setup) -> None:
    """Write each model's archive, unpacked, to `setup.models`/NAME/model, the way SageMaker hands models to containers.

    A model whose weights lie on this machine is pointed at them, which takes the place of id and revision; everything
    else is what a deploy publishes.
    """
    shutil.rmtree(setup.models, ignore_errors=True)
    image = parse_image(catalog.endpoint.image)
    for name, entry in catalog.models.items():
        # Without an endpoint there is no S3, so what lies on this machine or the Hub is served.
        properties = properties_of(entry.model_copy(update={"weights": "hub"}))
        if (weights := engine.weights_url(setup, name)) is not None:
            properties = {key: text for key, text in properties.items() if key != "option.revision"}
            properties["option.model_id"] = weights
        folder = setup.models / name / "model"
        folder.mkdir(parents=True)
        for file, content in model_files(properties, requirements_for(entry, image), code_of(entry)).items():
            (folder / file).write_bytes(content)


def load_models(server: Server, models: Mapping[str, str]) -> list[Loaded]:
    """Have a server load models (name → folder as the server sees it), one after another, as an endpoint does."""
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=_LOAD_TIMEOUT_S, trust_env=False) as client:
        return [_load(client, name, folder) for name, folder in models.items()]


def explained(loads: Sequence[Loaded], log: Path) -> list[Loaded]:
    """Add the last error of a model's worker in a server's log to a fault that only says that there was a failure."""
    told = [load for load in loads if load.fault is not None and says_nothing(load.fault)]
    if not told:
        return list(loads)
    reader = read_log(log)
    reasons = {load.name: reader.reason(load.name) for load in told}
    return [
        replace(load, fault=f"{load.fault} ({reasons[load.name]})") if reasons.get(load.name) else load
        for load in loads
    ]


def _load(client: httpx.Client, name: str, folder: str) -> Loaded:
    begun = time.monotonic()
    try:
        answer = client.post("/models", json={"model_name": name, "url": folder})
        fault = None if answer.is_success else f"{answer.status_code} {_message(answer)}"
    except httpx.HTTPError as error:
        fault = f"no answer: {error}"
    return Loaded(name=name, seconds=time.monotonic() - begun, fault=fault)


def _message(answer: httpx.Response) -> str:
    try:
        content: Any = answer.json()
    except ValueError:
        return answer.text.strip() or answer.reason_phrase
    message = content.get("message") if isinstance(content, dict) else None
    return str(message or answer.reason_phrase)
