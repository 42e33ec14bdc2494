"""The docker engine: every argument that it gives to docker, and the folders that the container sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.engine_programs import DOCKER, IMAGE

from local_aws.engines.docker import DockerEngine
from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.engine_programs import Programs

    from local_aws.engines.engine import Setup


def test_the_whole_command_without_a_gpu(programs: Programs, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    """Name, memory, port on the loopback alone, mode, models and cache; nothing of GPUs, tokens or hubs."""
    programs.install("docker", DOCKER)
    start = DockerEngine().start(make_setup())
    assert start.command == [
        *("docker", "run", "--rm", "--name", "encoder-lmi-local", "--shm-size", "2g"),
        *("--publish", "127.0.0.1:8085:8080", "--env", "SAGEMAKER_MULTI_MODEL=true"),
        *("--volume", "/state/models:/opt/ml/models:ro"),
        *("--volume", f"{tmp_path}/home/.cache/huggingface:/tmp/.cache/huggingface"),
        *(IMAGE, "serve"),
    ]
    assert start.environment == {}
    assert start.upstream == "http://127.0.0.1:8085"
    assert start.warning is not None
    assert "also listens on 127.0.0.1:8085" in start.warning
    assert (tmp_path / "home/.cache/huggingface").is_dir()


def test_models_lie_where_sagemaker_puts_them(make_setup: Callable[..., Setup]) -> None:
    """A server in the image is told paths of the container, not of this machine."""
    engine, setup = DockerEngine(), make_setup(weights={"minilm": Path("/hub/org/minilm")})
    assert engine.model_url(setup, "minilm") == "/opt/ml/models/minilm/model"
    assert engine.weights_url(setup, "minilm") == "/opt/cohost/weights/minilm"
    assert engine.weights_url(setup, "other") is None


def test_no_docker_at_all(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """The first check of all."""
    assert programs.calls == []
    with pytest.raises(EngineError, match=r"docker is not on PATH; .*use --engine embedded or djl"):
        DockerEngine().check(make_setup())
