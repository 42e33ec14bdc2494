"""The import contracts of `make check`: the project keeps them, and each forbidden import is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cohost", "constructs_lib", "load_tests", "local_aws", "stacks")

PLANTED = {
    "a circle of two files": (
        "constructs_lib/acknowledgements.py",
        "import constructs_lib.iam\n",
        "No cycles are allowed in constructs_lib",
    ),
    "a circle that only a type closes": (
        "local_aws/sagemaker/hosting/placement.py",
        "import typing\nif typing.TYPE_CHECKING:\n    import local_aws.sagemaker.hosting.component_variant\n",
        "No cycles are allowed in local_aws.sagemaker.hosting",
    ),
    "a circle of folders": (
        "cohost/hardware/instances.py",
        "import cohost.catalog.models\n",
        "No cycles are allowed in cohost",
    ),
    "a service that knows another": (
        "local_aws/cloudwatch/expressions.py",
        "import local_aws.autoscaling.errors\n",
        "local_aws.cloudwatch is not allowed to import local_aws.autoscaling",
    ),
    "the kit that knows a service": (
        "local_aws/kit/errors.py",
        "import local_aws.scheduler.targets\n",
        "local_aws.kit is not allowed to import local_aws.scheduler",
    ),
    "the core that knows the emulator": (
        "cohost/errors.py",
        "import local_aws.kit.errors\n",
        "cohost is not allowed to import local_aws",
    ),
    "a folder that no contract names": (
        "cohost/novelties.py",
        '"""A module of no layer."""\n',
        "novelties",
    ),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of the packages in a folder."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "300"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the product's Python files, and of the contracts."""
    for package in PACKAGES:
        for source in (ROOT / package).rglob("*.py"):
            target = tmp_path / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def test_the_product_keeps_its_contracts() -> None:
    """The project keeps all import contracts."""
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_arrow_breaks_a_contract(copied: Path, kind: str) -> None:
    """Each kind of import that the import contracts forbid is found and named."""
    file, text, told = PLANTED[kind]
    path = copied / file
    path.write_text((path.read_text() if path.exists() else "") + "\n" + text)
    done = lint(copied)
    assert done.returncode == 1, done.stdout
    assert told in done.stdout
