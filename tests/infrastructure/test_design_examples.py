"""The examples with comparison designs: synthesised by the application, without a finding of nag or the linter."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from cfnlint.api import ManualArgs, lint_file
from synthesis import FLAGS, ROOT

from cohost.catalog import load_catalog
from cohost.onnx.archive import archive_file, note_file
from cohost.onnx.recipe import recipe_for
from cohost.plan.profiles import profiles_path

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = ROOT / "model_configs" / "examples"
STACKS = {
    "cpu-onnx": ["CpuOnnxStack"],
    "inference-components": ["InferenceComponentsStack"],
    "offline-cpu-onnx": ["CpuOnnxStack", "InferenceComponentsStack"],
}


def pretend_exported(file: Path, folder: Path) -> None:
    """Archives and notes as export-onnx writes them; a synth reads their checksums alone."""
    catalog = load_catalog(file)
    folder.mkdir()
    for name in catalog.models:
        content = name.encode()
        archive_file(folder, name).write_bytes(content)
        note = {"recipe": recipe_for(name, catalog).as_data("translator"), "serving": "translator"}
        note_file(folder, name).write_text(json.dumps({**note, "sha256": hashlib.sha256(content).hexdigest()}))


@pytest.mark.parametrize("name", STACKS)
def test_example_is_synthesised_without_a_finding(name: str, tmp_path: Path) -> None:
    """What a user copies deploys as it stands; the catalog's own stack is there as without the designs."""
    # GIVEN
    content = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    if "cpu-onnx" in content["designs"]:
        content["designs"]["cpu-onnx"]["archives"] = str(tmp_path / "onnx")
    file = tmp_path / "catalog.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    shutil.copyfile(profiles_path(EXAMPLES / f"{name}.yaml"), profiles_path(file))
    pretend_exported(file, tmp_path / "onnx")
    # WHEN
    out = tmp_path / "out"
    settings = {"CDK_OUTDIR": str(out), "CDK_CONTEXT_JSON": json.dumps({**FLAGS, "catalog": str(file)})}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_", "COHOST_"))}
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**inherited, **settings, "CDK_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # THEN
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((out / "validation-report.json").read_text())["pluginReports"] == []
    assert {file.name.partition(".")[0] for file in out.glob("*.template.json")} == {"LmiCohostStack", *STACKS[name]}
    for stack in STACKS[name]:
        assert lint_file(out / f"{stack}.template.json", config=ManualArgs(regions=["us-east-1"])) == []
