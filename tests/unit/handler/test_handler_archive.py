"""The handler as packed: plain files in one folder, imported by the server under a name of its choice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from handler_calls import HUB, MINILM

import cohost.handler

SOURCE = Path(cohost.handler.__file__).parent
SCRIPT = """
import asyncio, importlib, json, os, sys
sys.path.insert(0, {root!r})
from local_aws.lmi import handler_api
handler_api.install()
sys.path.remove({root!r})
sys.path.insert(0, {folder!r})
before = set(sys.modules)
module = importlib.import_module("model")
print("OMP_WAIT_POLICY", os.environ["OMP_WAIT_POLICY"])
print("ALLOC_CONF", [os.environ.get(f"PYTORCH_{{name}}ALLOC_CONF") for name in ("", "CUDA_")])
ours = [name for name in set(sys.modules) - before if name.partition(".")[0] in {{"cohost", "local_aws"}}]
assert not ours, f"it needs this project: {{ours}}"

def request(properties, body=None):
    inputs = handler_api.Input()
    inputs.properties = properties
    if body is not None:
        inputs.content.add("data", json.dumps(body).encode())
    return inputs

async def main():
    await module.handle(request({{"model_id": {model!r}, "model_dir": {folder!r}, "device_id": "-1"}}))
    output = await module.handle(request({{"Content-Type": "application/json"}}, {{"inputs": "the movie was great"}}))
    print(bytes(output.content.value_at(0)))

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("given", "allocator"),
    [({}, "['expandable_segments:True', None]"), ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "[None, 'max_")],
    ids=["bare", "users"],
)
def test_the_files_alone_serve_a_model(tmp_path: Path, given: dict[str, str], allocator: str) -> None:
    """The handler's copied files serve a model in a fresh interpreter without this project on the path.

    A setting of the user's stays as it is.
    """
    folder = tmp_path / "model"
    folder.mkdir()
    for file in SOURCE.glob("*.py"):
        if file.name != "__init__.py":
            shutil.copy(file, folder)
    script = SCRIPT.format(root=str(HUB.parents[3]), folder=str(folder), model=MINILM)
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "OMP_WAIT_POLICY"}}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment | given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "OMP_WAIT_POLICY PASSIVE" in done.stdout
    assert f"ALLOC_CONF {allocator}" in done.stdout
    assert '"label":"neutral"' in done.stdout


@pytest.mark.parametrize("file", sorted(SOURCE.glob("*.py")), ids=lambda file: file.name)
def test_a_file_of_the_archive_hides_no_other_module(file: Path) -> None:
    """No file of the archive has the name of a standard module such as `queue`."""
    assert file.name in {"__init__.py", "model.py"} or file.name.startswith("cohost_")
