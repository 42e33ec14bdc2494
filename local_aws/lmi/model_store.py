"""Which models a container loads when it starts.

Source: DJL Serving 0.36.0 (ModelStore), recorded (11-17_startup_*): a store of folders is a model each; anything else
in it, even a README, makes the store itself the model; archives lying there are ignored. A folder's name becomes a
model's by a rule of its own (29): of two folders that become equal, the second one's load ends the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from cohost.artifacts.archive import server_name
from local_aws.lmi.archive import innermost, is_archive
from local_aws.lmi.model import Model

if TYPE_CHECKING:
    from pathlib import Path


# What Java leaves as it is in the path of an address (java.net.URI: quoted characters).
_UNQUOTED = "/!$&'()*+,;=:@~"


def startup_models(store: Path) -> list[Model]:
    """The models of a store, unloaded; none when the store is empty or not there."""
    if not store.is_dir():
        return []
    entries = sorted(store.iterdir())
    if all(entry.is_dir() or is_archive(entry) for entry in entries if not entry.name.startswith(".")):
        return [_model(entry) for entry in entries if entry.is_dir() and any(entry.iterdir())]
    return [_model(store)]


def _model(folder: Path) -> Model:
    inner = innermost(folder.absolute())
    return Model(server_name(inner.name), f"file:{quote(str(inner), safe=_UNQUOTED)}/", at_startup=True)
