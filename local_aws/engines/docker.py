"""The engine `docker`: the endpoint's container image, run in Docker on this machine.

Source of labels and mount points: AWS, "Custom Containers Contract for Multi-Model Endpoints", by which a container can
only read its models. Source of the Hugging Face cache's folder: HF_HOME in the Dockerfile of the lmi image (DJL Serving
0.36.0).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local_aws.engines.engine import CONTAINER_NAME, EngineError, StartCommand
from local_aws.engines.machine import find_program, gpus, output_of, run_program

if TYPE_CHECKING:
    from local_aws.engines.engine import Setup

LABELS: Final = (
    "com.amazonaws.sagemaker.capabilities.multi-models",
    "com.amazonaws.sagemaker.capabilities.accept-bind-to-port",
)
_CACHE: Final = "/tmp/.cache/huggingface"  # noqa: S108 - the folder in the image
_MODELS: Final = Path("/opt/ml/models")
_WEIGHTS: Final = Path("/opt/cohost/weights")
# Workers pass tensors in shared memory, of which Docker gives a container 64 MiB by default.
_SHARED_MEMORY: Final = "2g"
_CONTAINER_PORT: Final = 8080
_PULL_TIMEOUT_S: Final = 3600.0


class DockerEngine:
    """The engine that runs the endpoint's image in Docker; Docker deletes the container when it ends."""

    name = "docker"
    container: str | None = CONTAINER_NAME

    def check(self, setup: Setup) -> None:
        """Check that Docker works, that the container's name is free, and that the image has all `LABELS`.

        An image that is not on this machine is pulled first.
        """
        find_program(
            "docker", needed_for="--engine docker", fix="install Docker Engine, or use --engine embedded or djl"
        )
        run_program(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            field="--engine docker",
            problem="the Docker daemon does not answer",
            fix="start it, or let your user talk to it",
        )
        if output_of(["docker", "container", "inspect", "--format", "{{.Id}}", CONTAINER_NAME]) is not None:
            raise EngineError(
                "container-exists",
                "--engine docker",
                f"a container named {CONTAINER_NAME} exists",
                allowed="one at a time",
                fix=f"remove it with `docker rm --force {CONTAINER_NAME}`",
            )
        if _labels(setup.image) is None:
            _pull(setup.image)
        _check_labels(setup.image)

    def start(self, setup: Setup) -> StartCommand:
        """Return the command `docker run`, which runs the container in the foreground."""
        command = ["docker", "run", "--rm", "--name", CONTAINER_NAME, "--shm-size", _SHARED_MEMORY]
        if gpus():
            command += ["--gpus", "all"]
        upstream = f"127.0.0.1:{setup.upstream_port}"
        command += ["--publish", f"{upstream}:{_CONTAINER_PORT}"]
        command += ["--env", "SAGEMAKER_MULTI_MODEL=true"]
        for name, value in setup.environment.items():
            command += ["--env", f"{name}={value}"]
        if os.environ.get("HF_TOKEN"):
            # Pass the variable by name only: its value would be visible in the list of processes.
            command += ["--env", "HF_TOKEN"]
        command += ["--volume", f"{setup.models}:{_MODELS}:ro", "--volume", f"{_cache_folder()}:{_CACHE}"]
        for name, folder in setup.weights.items():
            command += ["--volume", f"{folder}:{_WEIGHTS / name}:ro"]
        return StartCommand(
            command=[*command, setup.image, "serve"],
            environment={},
            upstream=f"http://{upstream}",
            warning=(
                f"the container's server also listens on {upstream}, where it asks nobody for a token: while it runs, "
                "a web page in a browser of this machine that finds this port can run code in the container."
            ),
        )

    def stop(self) -> None:
        """Delete the container, which may still run if the `docker run` process was killed."""
        output_of(["docker", "rm", "--force", CONTAINER_NAME])

    def model_url(self, setup: Setup, name: str) -> str:  # noqa: ARG002 - the protocol's
        """Return the folder of a model in the container, below /opt/ml/models."""
        return str(_MODELS / name / "model")

    def weights_url(self, setup: Setup, name: str) -> str | None:
        """Return the mount point of a model's weights in the container; None if this machine has no weights of it."""
        return str(_WEIGHTS / name) if name in setup.weights else None


def _labels(image: str) -> dict[str, str] | None:
    """Return the labels of an image; None if the image is not on this machine."""
    answer = output_of(["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", image])
    return None if answer is None else json.loads(answer) or {}


def _pull(image: str) -> None:
    registry = image.partition("/")[0]
    region = registry.split(".")[3] if registry.count(".") > 4 else "REGION"  # noqa: PLR2004 - ACCOUNT.dkr.ecr.REGION.…
    run_program(
        ["docker", "pull", image],
        field=f"image {image}",
        problem="cannot be pulled",
        fix=(
            f"log in with `aws ecr get-login-password --region {region} | "
            f"docker login --username AWS --password-stdin {registry}`"
        ),
        timeout_s=_PULL_TIMEOUT_S,
    )


def _check_labels(image: str) -> None:
    labels = _labels(image) or {}
    missing = [label for label in LABELS if labels.get(label) != "true"]
    if missing:
        raise EngineError(
            "image-label-missing",
            f"image {image}",
            f"lacks the label {missing[0]}=true, without which SageMaker does not take it for a multi-model container",
            allowed="djl-inference images",
            fix="choose one in the catalog's endpoint.image",
        )


def _cache_folder() -> Path:
    """Return this user's Hugging Face cache folder; create an absent one, which Docker would create as root."""
    folder = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
