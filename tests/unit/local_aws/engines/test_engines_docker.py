"""The docker engine: the arguments of docker and the mounted folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakes.refusals import refused

from local_aws.engines.docker import DockerEngine
from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.engine_programs import Programs

    from local_aws.engines.engine import Setup


def test_models_lie_where_sagemaker_puts_them(make_setup: Callable[..., Setup]) -> None:
    """The server in the image gets the container's paths of models."""
    engine, setup = DockerEngine(), make_setup(weights={"minilm": Path("/hub/org/minilm")})
    assert engine.model_url(setup, "minilm") == "/opt/ml/models/minilm/model"
    assert engine.weights_url(setup, "minilm") == "/opt/cohost/weights/minilm"
    assert engine.weights_url(setup, "other") is None


def test_no_docker_at_all(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """A missing docker command is the first error."""
    assert programs.calls == []
    with refused("program-missing", "--engine docker", kind=EngineError):
        DockerEngine().check(make_setup())
