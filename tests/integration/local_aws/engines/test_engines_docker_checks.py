"""The checks and the end of the docker engine, which run docker and nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.engine_programs import DOCKER, IMAGE, LABELS
from fakes.refusals import refused

from local_aws.engines.docker import DockerEngine
from local_aws.engines.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.engine_programs import Programs

    from local_aws.engines.engine import Setup

INSPECT = ["image", "inspect", "--format", "{{json .Config.Labels}}", IMAGE]


def test_the_whole_command_without_a_gpu(programs: Programs, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    """Without a GPU the docker command has name, memory, local port, mode, models and cache only."""
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


def test_the_whole_command_with_everything(
    programs: Programs, make_setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The docker command has GPUs, the catalog's variables, the token by name, and local weights."""
    programs.install("nvidia-smi", {"--query-gpu=index,name,memory.used,memory.total": {"out": "0, A10G, 5, 23028\n"}})
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    setup = make_setup(upstream_port=9000, environment={"LEVEL": "debug"}, weights={"minilm": Path("/hub/org/minilm")})
    command = DockerEngine().start(setup).command
    assert command == [
        *("docker", "run", "--rm", "--name", "encoder-lmi-local", "--shm-size", "2g", "--gpus", "all"),
        *("--publish", "127.0.0.1:9000:8080", "--env", "SAGEMAKER_MULTI_MODEL=true", "--env", "LEVEL=debug"),
        *("--env", "HF_TOKEN", "--volume", "/state/models:/opt/ml/models:ro"),
        *("--volume", f"{tmp_path}/cache:/tmp/.cache/huggingface"),
        *("--volume", "/hub/org/minilm:/opt/cohost/weights/minilm:ro", IMAGE, "serve"),
    ]
    assert "secret" not in " ".join(command)
    assert programs.arguments("nvidia-smi") == [
        ["--query-gpu=index,name,memory.used,memory.total", "--format=csv,noheader,nounits"]
    ]


def test_all_is_checked_before_anything_starts(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """Daemon, name, image and labels are checked before the start, without a change."""
    programs.install("docker", DOCKER)
    DockerEngine().check(make_setup())
    assert programs.arguments("docker") == [
        ["version", "--format", "{{.Server.Version}}"],
        ["container", "inspect", "--format", "{{.Id}}", "encoder-lmi-local"],
        INSPECT,
        INSPECT,
    ]


def test_an_absent_image_is_pulled(programs: Programs, make_setup: Callable[..., Setup]) -> None:
    """A missing image is pulled once, and the labels are read from the pulled image."""
    pulled = {"image inspect": {"out": LABELS}}
    answers = {
        **DOCKER,
        "image inspect": {"code": 1, "err": "No such image\n"},
        "pull": {"sets": ["docker.answers.json", pulled]},
    }
    programs.install("docker", answers)
    DockerEngine().check(make_setup())
    assert programs.arguments("docker")[2:] == [INSPECT, ["pull", IMAGE], INSPECT]


@pytest.mark.parametrize(
    ("answers", "code", "field", "about"),
    [
        (
            {"version": {"code": 1, "err": "Cannot connect to the Docker daemon\n"}},
            *("program-failed", "--engine docker", "Cannot connect"),
        ),
        ({"container inspect": {"out": "abc\n"}}, "container-exists", "--engine docker", "docker rm --force"),
        (
            {"image inspect": {"code": 1}, "pull": {"code": 1, "err": "no basic auth credentials\n"}},
            *("program-failed", f"image {IMAGE}", "get-login-password --region us-east-1 "),
        ),
        (
            {"image inspect": {"out": "null\n"}},
            *("image-label-missing", f"image {IMAGE}", "multi-models=true"),
        ),
        (
            {"image inspect": {"out": LABELS.replace('port":"true"', 'port":"false"')}},
            *("image-label-missing", f"image {IMAGE}", "accept-bind-to-port=true"),
        ),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    programs: Programs, make_setup: Callable[..., Setup], answers: dict[str, Any], code: str, field: str, about: str
) -> None:
    """Each check of Docker names the fault and the fix, with Docker's own message if there is one."""
    programs.install("docker", DOCKER | answers)
    with refused(code, field, kind=EngineError) as caught:
        DockerEngine().check(make_setup())
    assert about in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(arguments[0] in {"run", "rm"} for arguments in programs.arguments("docker"))


def test_the_end_removes_the_container(programs: Programs) -> None:
    """The container is removed at the end, even if it outlived the command that started it."""
    programs.install("docker", DOCKER)
    DockerEngine().stop()
    assert programs.arguments("docker") == [["rm", "--force", "encoder-lmi-local"]]
