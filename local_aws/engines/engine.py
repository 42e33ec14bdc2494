"""The protocol of an engine: checks, a command to start, a way to stop it, and the folders of models."""

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
    """Everything that an engine needs to know to start.

    Args:
        image: the image's URI.
        models: the folder whose folders `name/model/` hold the unpacked archives.
        scratch: a folder for files that the engine itself needs.
        port: the port on 127.0.0.1 that callers use.
        upstream_port: a free port, for a server that cannot check its callers and so is put behind a proxy.
        token: the text that callers have to send (cohost/callers.py).
        environment: the catalog's container environment.
        handlers: the handlers that the catalog's models use.
        hubs: folders of models laid out as org/name.
        weights: folder of a model's weights by model name, for those that lie on this machine.
    """

    image: str
    models: Path
    scratch: Path
    port: int
    upstream_port: int
    token: str
    environment: Mapping[str, str]
    handlers: AbstractSet[str]
    hubs: Sequence[Path]
    weights: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class StartCommand:
    """The command that starts an engine, its environment, and the address that it serves at.

    Args:
        command: the program and its arguments.
        environment: variables added to this process's environment.
        upstream: the address of a server that does not check its callers, a URL or `unix:` and a path; None for a
            server that checks them itself at `Setup.port`.
        warning: a text for the user about that address, None if no other program can reach it.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    upstream: str | None = None
    warning: str | None = None


class Engine(Protocol):
    """One way to serve archives. `name` is what the user calls it."""

    @property
    def name(self) -> str:
        """Return `embedded`, `djl` or `docker`."""

    @property
    def container(self) -> str | None:
        """Return the Docker container that runs the server, None where that is a child of this process."""

    def check(self, setup: Setup) -> None:
        """Check for everything that the engine needs, before anything is started.

        Raises:
            EngineError: the first missing requirement, with its fix.
        """

    def start(self, setup: Setup) -> StartCommand:
        """Return the command that serves in the foreground, and the address it serves at."""

    def stop(self) -> None:
        """Clean up what ending the started process leaves."""

    def model_url(self, setup: Setup, name: str) -> str:
        """Return the folder of a model as the server sees it."""

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """Return the server's address of weights on this machine; None if it finds them itself."""
