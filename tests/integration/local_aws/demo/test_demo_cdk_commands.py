"""Commands of cdk: their environment and arguments, and the error of a failed one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.errors import LocalError
from local_aws.demo import cdk as cdk_module
from local_aws.demo.cdk import Cdk

if TYPE_CHECKING:
    from pathlib import Path


def fake_cdk(project: Path, script: str) -> None:
    """Put a shell script in the place of the pinned cdk."""
    program = project / "node_modules" / ".bin" / "cdk"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder with a fake cdk."""
    monkeypatch.setattr(cdk_module, "PROJECT", tmp_path)
    return tmp_path


def test_failed_command_shows_the_end_of_its_output(project: Path) -> None:
    """The error of a failed cdk command has its last lines and the path of the log."""
    fake_cdk(project, "echo first; echo the reason >&2; exit 3")

    with refused("cdk-command-failed", kind=LocalError) as caught:
        Cdk(environment={}, out=project / "out").deploy(project / "c.yaml")
    assert "the reason" in caught.value.fix

    assert "$ cdk deploy LmiCohostStack" in (project / "out" / "cdk.log").read_text()


def test_real_account_is_out_of_reach(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile in the shell does not lead the demo to a real account."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "999999999999")
    monkeypatch.setenv("CDK_VALIDATION", "false")
    fake_cdk(project, "env")

    text = Cdk(environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, out=project / "out").diff(project / "c.yaml")

    assert "AWS_ENDPOINT_URL=http://127.0.0.1:1" in text
    assert "AWS_PROFILE" not in text
    assert "AWS_SESSION_TOKEN" not in text
    assert "999999999999" not in text
    assert "CDK_VALIDATION=false" in text


def test_catalog_and_output_folder_reach_the_app(project: Path) -> None:
    """The app gets the requested catalog, and writes no file into the checkout."""
    fake_cdk(project, 'echo "$@"')

    text = Cdk(environment={}, out=project / "out").diff(project / "c.yaml")

    assert f"--context catalog={os.fspath(project / 'c.yaml')}" in text
    assert f"--output {project / 'out' / 'cdk.out'}" in text
