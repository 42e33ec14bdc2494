"""`python -m local_aws.engines` from start to end, with fakes of docker and djl-serving."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fakes.engine_programs import DOCKER, IMAGE

from cohost.archives.properties import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakes.engine_programs import Programs

ROOT = Path(__file__).parents[4]
OFFLINE = ROOT / "model_configs" / "offline.yaml"
NAMES = ["minilm", "mdeberta", "xlmr-large"]
TOP = {
    "top": {"out": "PID RSS COMMAND\n71 218112 java\n95 1228800 python3 --model-dir /opt/ml/models/minilm/model -x\n"}
}


def _docker(refuses: list[str]) -> dict[str, Any]:
    return {**DOCKER, **TOP, "run": {"serve": refuses}}


def _command(command: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "local_aws.engines", command, *arguments]


def _run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(command, *arguments), cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def _error(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The error that a command with --json ended with."""
    (error,) = json.loads(result.stdout)["errors"]
    return dict(error)


def _free_port() -> str:
    """Return a port below the system's own range, so that no other process gets it by chance."""
    for port in range(20_000 + os.getpid() % 10_000, 32_768):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return str(port)
    pytest.fail("no port is free")


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_docker_serves_the_catalog_and_is_gone_afterwards(programs: Programs, tmp_path: Path) -> None:
    """The docker engine runs one container, registers every mounted model, reports, and removes the container."""
    programs.install("docker", _docker([]))
    port = _free_port()
    arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", port)
    result = _run("run", *arguments, "--check", "--json")
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert [load["name"] for load in content["loads"] if load["fault"] is None] == NAMES
    assert [(p["role"], p["resident_mb"]) for p in content["processes"]] == [
        ("server (java)", 213),
        ("worker of minilm", 1200),
    ]
    calls = [arguments[0] for arguments in programs.arguments("docker")]
    assert calls == ["version", "container", "image", "image", "run", "top", "rm"]
    command = programs.arguments("docker")[4]
    assert command[:5] == ["run", "--rm", "--name", "encoder-lmi-local", "--shm-size"]
    assert f"{tmp_path}/engine/models:/opt/ml/models:ro" in command
    assert f"{ROOT}/local_aws/data/hub/lmi-cohost/tiny-xlmr-nli:/opt/cohost/weights/xlmr-large:ro" in command
    assert command[-2:] == [IMAGE, "serve"]
    properties = loads((tmp_path / "engine/models/mdeberta/model/serving.properties").read_text())
    assert properties["option.model_id"] == "/opt/cohost/weights/mdeberta"
    assert not (tmp_path / "engine/engine.json").exists()


def test_a_model_that_is_refused_makes_the_check_fail(programs: Programs, tmp_path: Path) -> None:
    """--check ends with exit code 1 if a model gets 507, and loads the other models anyway."""
    programs.install("docker", _docker(["mdeberta"]))
    arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", _free_port())
    result = _run("run", *arguments, "--check")
    assert result.returncode == 1
    assert "mdeberta was not loaded: 507 No enough memory to load the model." in result.stderr
    assert "xlmr-large" in result.stdout


def test_djl_serves_the_catalog(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_tmp: Path
) -> None:
    """`--djl-home` starts a DJL Serving in multi-model mode that reads weights from their folder."""
    program = programs.install("djl-serving", {"--config-file": {"serve": []}})
    (tmp_path / "djl" / "bin").mkdir(parents=True)
    (tmp_path / "djl" / "bin" / "djl-serving").symlink_to(program)
    programs.install("java", {})
    python = programs.install("python", {"-c": {}})
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(python))
    arguments = ("--engine", "djl", "--djl-home", str(tmp_path / "djl"), "--catalog", str(OFFLINE))
    result = _run("run", *arguments, "--port", _free_port(), "--state", str(tmp_path), "--check", "--json")
    assert result.returncode == 0, result.stderr
    models = {model["name"] for model in json.loads(result.stdout)["models"]}
    assert models == set(NAMES)
    _, arguments_seen, environment = next(call for call in programs.calls if call[0] == "djl-serving")
    assert arguments_seen == ["--config-file", str(tmp_path / "engine/config.properties")]
    assert environment.pop("JAVA_OPTS").startswith(f"-Djava.io.tmpdir={short_tmp}/djl-")
    assert list(short_tmp.iterdir()) == []
    assert environment == {
        "MODEL_SERVER_HOME": str(tmp_path / "engine/home"),
        "PYTHON_EXECUTABLE": str(python),
        "SAGEMAKER_MULTI_MODEL": "true",
    }
    properties = loads((tmp_path / "engine/models/mdeberta/model/serving.properties").read_text())
    assert properties["option.model_id"] == str(ROOT / "local_aws/data/hub/lmi-cohost/tiny-mdeberta-nli")


def test_the_line_that_it_prints_calls_a_real_server(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_tmp: Path
) -> None:
    """The printed command with the token calls the server, and Ctrl-C ends all of its processes."""
    programs.install("djl-serving", {"--config-file": {"serve": []}})
    programs.install("java", {})
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(programs.install("python", {"-c": {}})))
    arguments = ("--engine", "djl", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", _free_port())
    with subprocess.Popen(
        _command("run", *arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("curl "))
        _, _, header, url = shlex.split(line)
        name, _, token = header.partition(": ")
        sent: list[dict[str, str]] = [{}, {name: "x"}, {name: token}]
        answers = [httpx.get(url, headers=headers, trust_env=False) for headers in sent]
        stored = tmp_path / "engine" / "engine.json"
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        assert token in stored.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert [answer.status_code for answer in answers] == [403, 403, 200]
    assert {model["modelName"] for model in answers[-1].json()["models"]} == set(NAMES)
    assert list(short_tmp.iterdir()) == []


def test_a_real_server_that_anybody_could_reach_is_warned_of(programs: Programs, tmp_path: Path) -> None:
    """The docker engine warns that its port requires no token."""
    programs.install("docker", _docker([]))
    arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", _free_port())
    result = _run("run", *arguments, "--check", "--json")
    published = next(part for part in programs.arguments("docker")[4] if part.startswith("127.0.0.1:"))
    place = published.removesuffix(":8080")
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert f"also listens on {place}, where it asks nobody for a token" in warning
    assert json.loads(result.stdout)["server"]["url"] != f"http://{place}"


def test_it_serves_until_ctrl_c_and_reports_meanwhile(programs: Programs, tmp_path: Path) -> None:
    """`report` finds the engine by the state folder; Ctrl-C removes the container and exits with 130."""
    programs.install("docker", _docker([]))
    arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", _free_port())
    with subprocess.Popen(
        _command("run", *arguments, "--json"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        state = tmp_path / "engine" / "engine.json"
        deadline = time.monotonic() + 60
        while not state.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert process.stdout is not None
        while (line := process.stdout.readline()) != b"}\n":
            assert line, "it ended"
        report = _run("report", "--state", str(tmp_path), "--json")
        as_table = _run("report", "--state", str(tmp_path))
        engine = json.loads(state.read_text())["pid"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)[0]["server"]["container"] == "encoder-lmi-local"
    assert "worker of minilm" in as_table.stdout
    assert "Everything is loaded and fits." in as_table.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(engine, 0)
    assert programs.arguments("docker")[-1] == ["rm", "--force", "encoder-lmi-local"]
    gone = _run("report", "--state", str(tmp_path), "--json")
    assert (gone.returncode, _error(gone)["code"]) == (1, "engine-not-running")


def test_an_engine_that_ends_at_once_is_told_with_its_last_words(programs: Programs, tmp_path: Path) -> None:
    """The error of an engine that ends at once has the last line and the path of its output."""
    programs.install("docker", {**_docker([]), "run": {"code": 125, "err": "could not select device driver\n"}})
    arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", "0")
    result = _run("run", *arguments, "--json")
    assert (result.returncode, _error(result)["code"]) == (1, "engine-ended")
    assert "exit code 125: could not select device driver" in _error(result)["problem"]


def test_a_port_in_use_is_told_before_anything_starts(programs: Programs, tmp_path: Path) -> None:
    """A used port is an error with a fix before a server starts."""
    programs.install("docker", _docker([]))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("--engine", "docker", "--catalog", str(OFFLINE), "--state", str(tmp_path), "--port", port)
        result = _run("run", *arguments)
    assert result.returncode == 1
    assert "error: --port: " in result.stderr
    assert programs.calls == []
