"""The application in a process of its own as cdk runs it, with cdk-nag and cfn-lint over its template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import aws_cdk as cdk
import pytest
from cfnlint.api import ManualArgs, lint_file
from synthesis import FLAGS, ROOT

from cohost.catalog_file import load_catalog
from constructs_lib.storage import buckets as model_bucket
from stacks.application import add_stacks

if TYPE_CHECKING:
    from pathlib import Path


def run_app(
    outdir: Path, *, context: dict[str, object] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run app.py as the cdk command does, with context and output folder in environment variables."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_", "COHOST_"))}
    settings = {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(FLAGS | (context or {})), **environment}
    return subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=inherited | settings, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output folder of the application for a catalog that is chosen by context."""
    outdir: Path = tmp_path_factory.mktemp("assembly")
    result = run_app(
        outdir,
        context={"catalog": "model_configs/offline.yaml"},
        COHOST_CATALOG="does-not-exist.yaml",
        CDK_DEFAULT_REGION="us-east-1",
        AWS_REGION="eu-west-1",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return outdir


def test_a_catalog_passes_nag(synthesised: Path) -> None:
    """Each finding of cdk-nag and each warning of the project's checks is acknowledged."""
    assert json.loads((synthesised / "validation-report.json").read_text())["pluginReports"] == []


def test_a_catalog_passes_the_linter(synthesised: Path) -> None:
    """The template of each catalog has neither errors nor warnings of cfn-lint."""
    assert lint_file(synthesised / "LmiCohostStack.template.json", config=ManualArgs(regions=["us-east-1"])) == []


def test_context_comes_before_environment(synthesised: Path) -> None:
    """`-c catalog=FILE` wins over COHOST_CATALOG, and CDK_DEFAULT_REGION over AWS_REGION."""
    template = json.loads((synthesised / "LmiCohostStack.template.json").read_text())
    catalog = load_catalog(ROOT / "model_configs/offline.yaml").catalog
    assert template["Outputs"]["Region"]["Value"] == "us-east-1"
    assert set(json.loads(template["Outputs"]["Models"]["Value"])) == set(catalog.models)
    assert all(entry.model_id in json.dumps(template) for entry in catalog.models.values())


def test_unacknowledged_finding_fails_the_synth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding of cdk-nag without an acknowledgement fails the synth."""
    # GIVEN a stack with a bucket that has no access log and no acknowledgement
    monkeypatch.setattr(model_bucket, "acknowledge", lambda *_, **__: None)
    app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=str(tmp_path))
    add_stacks(app, load_catalog(ROOT / "model_configs/encoders.yaml"), cdk.Environment(region="us-east-1"))
    # WHEN
    with pytest.raises(RuntimeError, match="server access logs disabled"):
        app.synth()
    # THEN
    assert "AwsSolutions-S1" in (tmp_path / "validation-report.json").read_text()


def test_faulty_catalog_is_told_line_by_line(tmp_path: Path) -> None:
    """Errors of a catalog end the synth with one line each on stderr, without a traceback."""
    # GIVEN
    catalog = tmp_path / "bad.yaml"
    catalog.write_text("endpoint: {name: a_b, instanc_type: x}\nmodels: {}\n")
    # WHEN
    result = run_app(tmp_path / "out", COHOST_CATALOG=str(catalog))
    # THEN
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith(f"{catalog}:")]
    assert len(lines) >= 3
    assert any("fix: write 'instance_type'" in line for line in lines)


def test_unknown_region_is_told_in_one_line(tmp_path: Path) -> None:
    """The region of the caller's configuration is checked before anything is written."""
    result = run_app(tmp_path, CDK_DEFAULT_REGION="eu-central-9")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "region: 'eu-central-9'" in result.stderr
    assert not list(tmp_path.glob("*.template.json"))


def test_flags_are_those_that_the_pinned_command_recommends() -> None:
    """The feature flags of cdk.json are the ones that the pinned cdk recommends."""
    recommended = ROOT / "node_modules/aws-cdk/lib/init-templates/.recommended-feature-flags.json"
    if not recommended.exists():
        pytest.skip("the cdk command is not installed")
    assert json.loads(recommended.read_text()) == FLAGS
