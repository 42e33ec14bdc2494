"""The protocol of an engine (a server for models): its checks, start command, clean-up and folders of models."""

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
    """The error for an unusable engine: a requirement is missing, or its server did not start or does not answer."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that an engine needs to know to start.

    Args:
        image: the URI of the container image.
        models: the folder with the unpacked archive of each model in `<name>/model/`.
        scratch: a folder for files that the engine itself needs.
        port: the port on 127.0.0.1 that callers use.
        upstream_port: a free port, for a server that cannot check its callers and so is put behind a proxy.
        token: the access token that callers have to send (cohost/callers.py).
        environment: the catalog's container environment.
        handlers: the handlers that the catalog's models use.
        hubs: folders with Hugging Face models as `org/name`.
        weights: the folders of weights by model name, for the models whose weights are on this machine.
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
        environment: variables that the server gets in addition to this process's environment.
        upstream: the address of a server that does not check its callers, a URL or `unix:` and a path; None for a
            server that listens on `Setup.port` and checks its callers itself.
        warning: a text for the user about `upstream`, None if no other program can reach that address.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    upstream: str | None = None
    warning: str | None = None


class Engine(Protocol):
    """A model server for a catalog's archives; `name` is the value of the option `--engine`."""

    @property
    def name(self) -> str:
        """Return the engine's name: `embedded`, `djl` or `docker`."""

    @property
    def container(self) -> str | None:
        """Return the name of the server's Docker container; None if the server is a child of this process."""

    def check(self, setup: Setup) -> None:
        """Check that this machine has everything that the engine needs; start no process of the server.

        Raises:
            EngineError: the first missing requirement, with its fix.
        """

    def start(self, setup: Setup) -> StartCommand:
        """Return the command that runs the server in the foreground, and the server's address."""

    def stop(self) -> None:
        """Delete the files and the container that remain after the server's process has ended."""

    def model_url(self, setup: Setup, name: str) -> str:
        """Return the path of a model's folder as the server has to open it."""

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """Return the path of a model's weights as the server has to open it; None if the server finds them itself."""
