"""A load test of an inference component on a real LMI container: at zero, and woken up first."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_local_sagemaker_components import MDEBERTA, MINILM, Aws, archive, serving, template

from cohost.report.run import load_run
from cohost.report.samples import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MODELS = {"minilm": MINILM, "mdeberta": MDEBERTA}


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    """A stack with a component that serves two models, at zero copies."""
    with serving(tmp_path) as made:
        made.s3.put_object(Bucket="models", Key="one.tar.gz", Body=archive(MODELS))
        made.create(template("one.tar.gz"))
        made.scale(0)
        yield made


@contextmanager
def started(aws: Aws, out: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start Locust as a user does, for both models of the component, and end it with the test."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("COHOST_", "AWS_"))},
        **aws.door.environment(),
    }
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "load_tests" / "encoders.py"), "--headless", "-u", "2"]
    command += ["--endpoint", "e", "--inference-component", "all-models", "--models", ",".join(MODELS)]
    command += ["--task", "text-classification", "--measure", "2", "--warmup", "0", "--out", str(out), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_load_test_at_zero_fails_or_wakes_the_component_up_first(aws: Aws, tmp_path: Path) -> None:
    """A load test at zero copies fails without --wake; with it one call is rejected before both models are measured."""
    with started(aws, tmp_path / "at-zero") as refused:
        output, _ = refused.communicate(timeout=120)
    assert refused.returncode == 3, output
    assert "failed: no capacity: Inference Component has no capacity" in output
    assert "--wake waits for a copy" in output

    with started(aws, tmp_path / "woken", "--wake") as waking:
        assert waking.stdout is not None
        lines = iter(waking.stdout.readline, "")
        assert any("waking up: 0 s" in line for line in lines)
        aws.scale(1)
        output, _ = waking.communicate(timeout=240)
    assert waking.returncode == 0, output

    run = load_run(tmp_path / "woken")
    assert [(phase.name, phase.kind) for phase in run.record.phases] == [
        ("waking", "cold"),
        ("first calls", "cold"),
        ("b1 c2", "measured"),
    ]
    assert run.record.target.inference_component_name == "all-models"
    assert run.record.target.instance_count == 1
    assert sum(run.samples["outcome"] == Outcome.NO_CAPACITY) == 1
    measured = run.of_phase(2)
    assert {run.record.models[index].name for index in measured["model"]} == set(MODELS)
    assert set(measured["outcome"]) == {Outcome.OK}
