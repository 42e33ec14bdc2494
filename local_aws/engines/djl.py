"""A DJL Serving that is installed on this machine.

Commands and settings: DJL Serving 0.36.0 (serving/docs/configurations_global.md; serving/build.gradle.kts: the tar
distribution has `bin/serving`, the packages `djl-serving`); PyEnv (PYTHON_EXECUTABLE).
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from local_aws.engines.engine import EngineError, Start
from local_aws.engines.programs import find_program, run_program

if TYPE_CHECKING:
    from pathlib import Path

    from local_aws.engines.engine import Setup

_PROGRAMS = ("djl-serving", "serving")


class DjlEngine:
    """Runs `djl-serving` from PATH, or the one below `home`."""

    name = "djl"
    container: str | None = None

    def __init__(self, home: Path | None) -> None:
        self._home = home

    def check(self, setup: Setup) -> None:  # noqa: ARG002 - the protocol's
        """DJL Serving, Java, and a Python that has what its handlers import."""
        self._program()
        if "JAVA_HOME" not in os.environ:
            find_program("java", needed_for="--engine djl", fix="install Java 17 or newer, or set JAVA_HOME")
        python = _python()
        run_program(
            [python, "-c", "import torch, transformers"],
            fault=(
                f"--engine djl: {python} cannot import torch and transformers, which models run on; fix: install them, "
                "or set PYTHON_EXECUTABLE to a Python that has them"
            ),
        )

    def start(self, setup: Setup) -> Start:
        """`djl-serving` with a configuration of its own, without models at the start."""
        home, store = setup.scratch / "home", setup.scratch / "store"
        for folder in (home, store):
            folder.mkdir(parents=True, exist_ok=True)
        configuration = setup.scratch / "config.properties"
        address = f"http://127.0.0.1:{setup.port}"
        configuration.write_text(
            f"inference_address={address}\nmanagement_address={address}\nmodel_store={store}\nload_models=NONE\n"
        )
        environment = {
            "MODEL_SERVER_HOME": str(home),
            "PYTHON_EXECUTABLE": _python(),
            "SAGEMAKER_MULTI_MODEL": "true",
            **setup.environment,
        }
        return Start(command=[self._program(), "--config-file", str(configuration)], environment=environment)

    def stop(self) -> None:
        """Its workers end with it."""

    def model_url(self, setup: Setup, name: str) -> str:
        """The folder as it is."""
        return str(setup.models / name / "model")

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """The folder as it is."""
        return str(setup.weights[name]) if name in setup.weights else None

    def _program(self) -> str:
        if self._home is None:
            fix = "install DJL Serving 0.36.0 (docs.djl.ai), or name its folder with --djl-home"
            return find_program("djl-serving", needed_for="--engine djl", fix=fix)
        for name in _PROGRAMS:
            if os.access(path := self._home / "bin" / name, os.X_OK):
                return str(path)
        msg = (
            f"--djl-home: {self._home} has neither bin/djl-serving nor bin/serving; allowed: the folder that the "
            "distribution of DJL Serving unpacks to; fix: name that folder"
        )
        raise EngineError(msg)


def _python() -> str:
    """The Python for workers: PYTHON_EXECUTABLE, else this one, which has torch and transformers."""
    named = os.environ.get("PYTHON_EXECUTABLE")
    return sys.executable if named is None else shutil.which(named) or named
