"""`cohost local run` and `cohost local report` with the embedded container and real models."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[4]


def test_the_embedded_engine_loads_the_offline_catalog_and_reports(tmp_path: Path) -> None:
    """The report lists each model with one healthy worker and its memory, and no process is left afterwards."""
    command = [sys.executable, "-m", "cohost", "local", "run", "--engine", "embedded", "--port", "0", "--check"]
    result = subprocess.run(
        [*command, "--json", "--state", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["fits"] is True
    assert [(m["name"], m["status"], m["workers"]) for m in content["models"]] == [
        ("mdeberta", "Healthy", 1),
        ("minilm", "Healthy", 1),
        ("xlmr-large", "Healthy", 1),
    ]
    roles = {process["role"]: process["resident_mb"] for process in content["processes"]}
    assert roles.keys() >= {"worker of mdeberta", "worker of minilm", "worker of xlmr-large", "parent of workers"}
    assert all(megabytes > 10 for megabytes in roles.values())
    assert content["resident_mb"] == sum(process["resident_mb"] for process in content["processes"])
    assert not (tmp_path / "engine" / "engine.json").exists()


def test_the_line_that_it_prints_calls_the_embedded_container(tmp_path: Path) -> None:
    """The printed command with the token calls the container on the user's port."""
    command = [sys.executable, "-m", "cohost", "local", "run", "--engine", "embedded", "--port", "0"]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("curl "))
        _, _, header, url = shlex.split(line)
        name, _, token = header.partition(": ")
        sent: list[dict[str, str]] = [{}, {name: "a guess"}, {name: token}]
        answers = [httpx.get(url, headers=headers, trust_env=False) for headers in sent]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert [answer.status_code for answer in answers] == [403, 403, 200]
    assert {model["modelName"] for model in answers[-1].json()["models"]} == {"minilm", "mdeberta", "xlmr-large"}
