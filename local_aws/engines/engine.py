"""What an engine is: checks, a command to start, a way to stop it, and where models lie for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path


CONTAINER_NAME: Final = "encoder-lmi-local"
DEFAULT_PORT: Final = 8084


class EngineError(LocalError):
    """Something that an engine needs is missing, or it did not start, or a model cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What an engine is started for.

    Args:
        image: the image's URI.
        models: the folder whose folders `name/model/` hold the unpacked archives.
        scratch: a folder for files that the engine itself needs.
        port: the port on 127.0.0.1 that callers use.
        behind_port: a free port, for a server that cannot check its callers and so lies behind a proxy.
        token: what callers have to send (cohost/callers.py).
        environment: the catalog's container environment.
        handlers: the handlers that the catalog's models use.
        hubs: folders of models laid out as org/name.
        weights: folder of a model's weights by model name, for those that lie on this machine.
    """

    image: str
    models: Path
    scratch: Path
    port: int
    behind_port: int
    token: str
    environment: Mapping[str, str]
    handlers: AbstractSet[str]
    hubs: Sequence[Path]
    weights: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Start:
    """The command that starts an engine, and what belongs to it.

    Args:
        command: the program and its arguments.
        environment: what is added to this process's environment.
        behind: where a server listens that asks its callers for nothing, a URL or `unix:` and a path; None for one that
            checks them by itself at `Setup.port`.
        warning: what the user has to know of that place, None where nobody else reaches it.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    behind: str | None = None
    warning: str | None = None


class Engine(Protocol):
    """One way to serve archives. `name` is what the user calls it."""

    @property
    def name(self) -> str:
        """`embedded`, `djl` or `docker`."""

    @property
    def container(self) -> str | None:
        """The name of the Docker container whose processes are the server's, None where they are children of ours."""

    def check(self, setup: Setup) -> None:
        """Say what is missing, before anything is started.

        Raises:
            EngineError: the first thing that is missing, with the way to get it.
        """

    def start(self, setup: Setup) -> Start:
        """The command that serves in the foreground, and where."""

    def stop(self) -> None:
        """Whatever ending the started process does not do."""

    def model_url(self, setup: Setup, name: str) -> str:
        """Where the server finds the folder of a model."""

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """Where the server finds the weights that lie on this machine; None where it looks for them by itself."""
