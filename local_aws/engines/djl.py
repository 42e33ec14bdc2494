"""The engine `djl`: a DJL Serving installed on this machine.

The commands and settings are those of DJL Serving 0.36.0 (serving/docs/configurations_global.md). Further sources in
its repository: serving/build.gradle.kts (the tar distribution has `bin/serving`, the packages have `djl-serving`),
Connector and src/main/conf/config.properties (addresses `unix:/path`), ConfigManager (SERVING_ variables override the
configuration file), and PyEnv (PYTHON_EXECUTABLE). According to its class Connection, the workers' sockets and process
id files lie in java.io.tmpdir, under the same names for every server of a machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cohost.archives.handlers import ENGINE_HANDLERS
from local_aws.engines.engine import EngineError, StartCommand
from local_aws.engines.machine import find_program, run_program
from local_aws.engines.proxy import UNIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local_aws.engines.engine import Setup

_STOCK: Final = "stock"
_SOCKET: Final = "api.sock"
_LONGEST_SOCKET: Final = "djl_sock.19000"
_MOST_BYTES: Final = 103  # The longest path of a Unix socket on macOS; Linux allows four bytes more.
_PROGRAMS = ("djl-serving", "serving")
# The third-party modules that a worker imports before its first call, by handler: those of djl_python_engine.py and
# djl_python/huggingface.py with their imports (0.36.0), and those of this project's handler.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    _STOCK: ("numpy", "torch", "transformers", "peft", "pydantic", "PIL", "requests", "typing_extensions"),
    **dict.fromkeys(ENGINE_HANDLERS, ("numpy", "tokenizers", "torch", "transformers")),
}
# A program that prints the modules among its arguments that cannot be imported, each with the reason.
TRY_IMPORTS: Final = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name} ({' '.join(str(error).split())})")
"""


class DjlEngine:
    """The engine that runs `djl-serving`, from PATH if `home` is None, else from the folder `home`."""

    name = "djl"
    container: str | None = None

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._folder: Path | None = None

    def check(self, setup: Setup) -> None:
        """Check for DJL Serving, Java, and a Python that can import the modules of the catalog's handlers."""
        self._program()
        if "JAVA_HOME" not in os.environ:
            find_program("java", needed_for="--engine djl", fix="install Java 17 or newer, or set JAVA_HOME")
        _check_modules(_python(), sorted({module for handler in setup.handlers for module in MODULES[handler]}))

    def start(self, setup: Setup) -> StartCommand:
        """Return the command that starts `djl-serving` without models, with its own configuration and socket folder."""
        home, store = setup.scratch / "home", setup.scratch / "store"
        for folder in (home, store):
            folder.mkdir(parents=True, exist_ok=True)
        configuration = setup.scratch / "config.properties"
        self._folder = _folder_for_sockets()
        address = f"{UNIX}{self._folder}/{_SOCKET}"
        configuration.write_text(
            f"inference_address={address}\nmanagement_address={address}\nmodel_store={store}\nload_models=NONE\n"
        )
        environment = {
            "MODEL_SERVER_HOME": str(home),
            "PYTHON_EXECUTABLE": _python(),
            "SAGEMAKER_MULTI_MODEL": "true",
            **setup.environment,
            # Set after the catalog's variables, which could otherwise open a port to other machines.
            "SERVING_INFERENCE_ADDRESS": address,
            "SERVING_MANAGEMENT_ADDRESS": address,
            "JAVA_OPTS": _java_options(setup.environment, self._folder),
        }
        command = [self._program(), "--config-file", str(configuration)]
        return StartCommand(command=command, environment=environment, upstream=address)

    def stop(self) -> None:
        """Delete the folder of the sockets; the worker processes have ended together with the server."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def model_url(self, setup: Setup, name: str) -> str:
        """Return the folder of a model on this machine, where DJL Serving runs too."""
        return str(setup.models / name / "model")

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """Return the folder of a model's weights; None if the weights are not on this machine."""
        return str(setup.weights[name]) if name in setup.weights else None

    def _program(self) -> str:
        if self._home is None:
            fix = "install DJL Serving 0.36.0 (docs.djl.ai), or name its folder with --djl-home"
            return find_program("djl-serving", needed_for="--engine djl", fix=fix)
        for name in _PROGRAMS:
            if os.access(path := self._home / "bin" / name, os.X_OK):
                return str(path)
        raise EngineError(
            "djl-home-wrong",
            "--djl-home",
            f"{self._home} has neither bin/djl-serving nor bin/serving",
            allowed="the folder that the distribution of DJL Serving unpacks to",
            fix="name that folder",
        )


def _folder_for_sockets() -> Path:
    """Make a new folder, which only this user can open, for Unix sockets.

    Raises:
        EngineError: the path of a socket in the folder would be longer than 103 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="djl-"))
    if len(os.fsencode(folder / _LONGEST_SOCKET)) > _MOST_BYTES:
        folder.rmdir()
        raise EngineError(
            "socket-path-too-long",
            "TMPDIR",
            f"{folder.parent} is too long for sockets in it",
            allowed=f"{_MOST_BYTES} bytes for a socket's path",
            fix="set TMPDIR to a shorter one",
        )
    return folder


def _java_options(environment: Mapping[str, str], folder: Path) -> str:
    """Return JAVA_OPTS of the catalog or the user, extended by a setting that puts temporary files into `folder`.

    If two servers shared a folder for temporary files, each would kill the other's workers as left-overs of an earlier
    run.
    """
    given = environment.get("JAVA_OPTS", os.environ.get("JAVA_OPTS", ""))
    return f"{given} -Djava.io.tmpdir={shlex.quote(str(folder))}".strip()


def _check_modules(python: str, modules: Iterable[str]) -> None:
    """Check that the Python that runs the workers can import the modules that the handlers need.

    Raises:
        EngineError: this Python cannot be run, or cannot import a module.
    """
    missing = run_program(
        [python, "-c", TRY_IMPORTS, *modules],
        field="--engine djl",
        problem=f"{python} cannot be run",
        fix="set PYTHON_EXECUTABLE to a Python that can",
    ).splitlines()
    if missing:
        raise EngineError(
            "handler-modules-missing",
            "--engine djl",
            f"{python} cannot import {', '.join(missing)}, which the catalog's handlers import",
            allowed="a Python that has them all",
            fix="install them, or set PYTHON_EXECUTABLE to such a Python",
        )


def _python() -> str:
    """Return the workers' Python: PYTHON_EXECUTABLE, or this process's own, which has torch and transformers."""
    named = os.environ.get("PYTHON_EXECUTABLE")
    return sys.executable if named is None else shutil.which(named) or named
