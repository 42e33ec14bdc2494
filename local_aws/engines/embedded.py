"""The engine `embedded`: this project's own replacement of the LMI container (`local_aws/lmi`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cohost.callers import TOKEN_VARIABLE
from local_aws.engines.engine import StartCommand

if TYPE_CHECKING:
    from local_aws.engines.engine import Setup


class EmbeddedEngine:
    """The engine that runs `python -m local_aws.lmi`."""

    name = "embedded"
    container: str | None = None

    def check(self, setup: Setup) -> None:
        """Do nothing: this engine needs only the packages that `cohost local run` itself needs."""

    def start(self, setup: Setup) -> StartCommand:
        """Return the command that starts the embedded container without models."""
        store = setup.scratch / "store"
        store.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "local_aws.lmi", "--port", str(setup.port), "--model-store", str(store)]
        command += ["--multi-model", "--watch-parent"]
        for hub in setup.hubs:
            command += ["--hub", str(hub)]
        environment = {"SAGEMAKER_MULTI_MODEL": "true", **setup.environment, TOKEN_VARIABLE: setup.token}
        return StartCommand(command=command, environment=environment)

    def stop(self) -> None:
        """Do nothing: the container's worker processes end with the container."""

    def model_url(self, setup: Setup, name: str) -> str:
        """Return the folder of a model on this machine, where the container runs too."""
        return str(setup.models / name / "model")

    def weights_url(self, setup: Setup, name: str) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: the embedded container itself finds the weights in `Setup.hubs`, by model id."""
        return None
