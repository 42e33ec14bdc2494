"""The comparison designs with the real cdk command: exported, deployed, called, and deleted completely."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from emulation import emulation
from typer.testing import CliRunner

from cohost import cli
from cohost.endpoint.client import CohostClient
from local_aws.demo.cdk import PROJECT
from local_aws.lmi.models.hub import default_roots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

    from local_aws.demo.cdk import Cdk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLE = PROJECT / "model_configs/examples/offline-cpu-onnx.yaml"
STACKS = ("CpuOnnxStack", "InferenceComponentsStack")
TEXTS = ["The train to Busan leaves at nine.", "부산행 기차는 아홉 시에 떠납니다."]
PAIR = {"text": "The train leaves.", "text_pair": "기차가 떠난다."}
SETTINGS = {"task": "text-classification", "required_memory_mb": 512, "cpu": {"minWorkers": 1, "maxWorkers": 1}}


def run(*arguments: str) -> Result:
    """A cohost command that has to succeed."""
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the example without its largest model, whose export takes the longest."""
    folder = tmp_path_factory.mktemp("designs")
    content = yaml.safe_load(EXAMPLE.read_text())
    del content["models"]["minilm"]
    content["designs"]["cpu-onnx"]["archives"] = str(folder / "onnx")
    for entry in content["models"].values():
        entry.update(SETTINGS)
    file = folder / "catalog.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


@pytest.fixture(scope="module")
def cdk(catalog: Path) -> Iterator[Cdk]:
    """Return the cdk command for an emulator of this file."""
    with emulation(catalog.parent, catalog) as own:
        yield own.cdk


def test_designs_are_deployed_called_and_destroyed(catalog: Path, cdk: Cdk) -> None:
    """Both designs of one catalog answer the same calls by the same names, and are deleted afterwards."""
    run("export-onnx", "--catalog", str(catalog), "--hub", str(default_roots()[0]))
    cdk.bootstrap()
    cdk.run("deploy", *STACKS, "--require-approval", "never", catalog=catalog)

    answers = {stack: _answers(CohostClient.from_stack(stack)) for stack in STACKS}
    for stack, found in answers.items():
        assert [sorted(item) for item in found["xlmr-large"]] == [["label", "score"]] * 2, stack
        assert [sorted(item) for item in found["pair"]] == [["label", "score"]], stack
    for key in ("xlmr-large", "pair"):
        one, other = (found[key] for found in answers.values())
        assert [item["label"] for item in one] == [item["label"] for item in other]
        assert [item["score"] for item in one] == pytest.approx([item["score"] for item in other], abs=1e-2)

    run("invoke", "--stack", "CpuOnnxStack", "--model", "xlmr-large", "비")
    for stack in STACKS:
        status = json.loads(run("status", "--stack", stack, "--json").stdout)
        assert status["endpoint_status"] == "InService"
        assert len(status["archives"]) == 2

    cdk.destroy(*STACKS)
    assert boto3.client("sagemaker").list_endpoints()["Endpoints"] == []
    left = {stack["StackName"] for stack in boto3.client("cloudformation").describe_stacks()["Stacks"]}
    assert left == {"CDKToolkit"}


def _answers(client: CohostClient) -> dict[str, Any]:
    return {"xlmr-large": client.invoke("xlmr-large", TEXTS), "pair": client.invoke("mdeberta", PAIR)}
