"""This project's own container (local_aws.lmi)."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from cohost.callers import TOKEN_VARIABLE
from local_aws.engines.engine import EngineError, StartCommand

if TYPE_CHECKING:
    from local_aws.engines.engine import Setup


_NEEDS = ("psutil", "starlette", "torch", "transformers", "uvicorn")


class EmbeddedEngine:
    """The engine that runs `python -m local_aws.lmi`."""

    name = "embedded"
    container: str | None = None

    def check(self, setup: Setup) -> None:  # noqa: ARG002 - the protocol's
        """Check for the packages of the group `local`."""
        missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            msg = (
                f"--engine embedded: needs {', '.join(missing)}; allowed: an environment with the group `local`; fix: "
                "run `make setup`, or `uv sync --group local`"
            )
            raise EngineError(msg)

    def start(self, setup: Setup) -> StartCommand:
        """Return the command of a container without models at the start."""
        store = setup.scratch / "store"
        store.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "local_aws.lmi", "--port", str(setup.port), "--model-store", str(store)]
        command += ["--multi-model", "--watch-parent"]
        for hub in setup.hubs:
            command += ["--hub", str(hub)]
        environment = {"SAGEMAKER_MULTI_MODEL": "true", **setup.environment, TOKEN_VARIABLE: setup.token}
        return StartCommand(command=command, environment=environment)

    def stop(self) -> None:
        """Do nothing: the workers end with the server."""

    def model_url(self, setup: Setup, name: str) -> str:
        """Return the folder as it is."""
        return str(setup.models / name / "model")

    def weights_url(self, setup: Setup, name: str) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: the container finds model ids in its hubs."""
        return None
