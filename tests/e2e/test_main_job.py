"""The main job with the real cdk command and the emulator: each test is the next step in the life of one deploy."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

# jsii writes a banner to stderr on a Node version at its end of life; set before it is imported.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import aws_cdk
import boto3
import pytest
from aws_cdk import aws_s3_assets, aws_ssm
from transformers import pipeline
from typer.testing import CliRunner

from cohost import cli
from local_aws.demo.script import find_leftovers
from local_aws.kit.account import ACCOUNT_ID, DEFAULT_REGION
from local_aws.lmi.models.hub import Hub, default_roots

if TYPE_CHECKING:
    from tests.e2e.conftest import Journey

pytestmark = [pytest.mark.e2e, pytest.mark.steps, pytest.mark.timeout(180)]

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = ["The train to Busan leaves at nine.", "부산행 기차는 아홉 시에 떠납니다."]
ADDED = {
    "model_id": "lmi-cohost/tiny-minilm-nli",
    "task": "zero-shot-classification",
    "required_memory_mb": 1024,
    "cpu": {"minWorkers": 1, "maxWorkers": 1},
}


def block_of(diff: str, resource_type: str) -> list[str]:
    """Return the lines of `cdk diff` for the only resource of a type, without the drawn tree."""
    lines = iter(ANSI.sub("", diff).splitlines())
    block = []
    for line in lines:
        if line.startswith(f"[~] {resource_type} "):
            break
    for line in lines:
        if not line.startswith((" ", "│")):
            break
        block.append(line.strip(" │├└─"))
    return block


def test_bootstrap(journey: Journey) -> None:
    """`cdk bootstrap` prepares the emulator's account as a real one."""
    journey.cdk.bootstrap()

    stacks = boto3.client("cloudformation").describe_stacks(StackName="CDKToolkit")["Stacks"]
    assert stacks[0]["StackStatus"] == "CREATE_COMPLETE"


def test_deploy(journey: Journey) -> None:
    """`cdk deploy` brings the endpoint into service with one archive per model."""
    journey.cdk.deploy(journey.file)

    assert journey.endpoint()["status"] == "InService"
    assert journey.keys(journey.deployment()) == ["mdeberta.tar.gz", "minilm.tar.gz", "xlmr-large.tar.gz"]


def test_every_model_answers(journey: Journey) -> None:
    """Every model of the endpoint returns one result for each text, English and Korean."""
    client = journey.client()

    for name in ("mdeberta", "xlmr-large"):
        answer = client.invoke(name, TEXTS)
        assert [sorted(item) for item in answer] == [["label", "score"]] * 2
    assert len(client.invoke("minilm", TEXTS)) == 2


def test_embeddings_equal_transformers_own(journey: Journey) -> None:
    """The endpoint's embeddings equal those that transformers computes from the same weights, to 1e-4."""
    folder = str(Hub(default_roots()).resolve("sentence-transformers/all-MiniLM-L6-v2", None))
    own = pipeline("feature-extraction", model=folder, tokenizer=folder)

    for text in TEXTS:
        (answer,) = journey.client().invoke("minilm", text)
        expected = own(text)
        assert len(answer[0]) == len(expected[0])
        for row, expected_row in zip(answer[0], expected[0], strict=True):
            assert row == pytest.approx(expected_row, abs=1e-4)


def test_diff_right_after_the_deploy_is_empty(journey: Journey) -> None:
    """`cdk diff` finds no difference between a stack that was just deployed and its catalog."""
    assert "There were no differences" in journey.cdk.diff(journey.file)


def test_diff_names_exactly_the_changed_model_and_key(journey: Journey) -> None:
    """`cdk diff` shows the old and new value of the one changed setting, and no other change of a model."""
    before = journey.copy_of_catalog()
    journey.models["mdeberta"]["required_memory_mb"] = 1536

    diff = journey.cdk.diff(journey.file)

    journey.catalog = before
    assert block_of(diff, "Custom::LmiModelStore") == [
        "[~] Models",
        "[~] .mdeberta:",
        "[~] .required_memory_mb:",
        "[-] 1024",
        "[+] 1536",
    ]


def test_added_model_leaves_the_endpoint_alone(journey: Journey) -> None:
    """A new model is one upload: SageMaker's model and endpoint config stay, and the new model answers."""
    before, generation = journey.endpoint(), journey.deployment().generation
    journey.models["zero-shot"] = dict(ADDED)

    journey.cdk.deploy(journey.file)

    assert journey.endpoint() == before
    assert journey.deployment().generation == generation
    (answer,) = journey.client().invoke("zero-shot", "기차", {"candidate_labels": ["여행", "요리"]})
    assert sorted(answer["labels"]) == ["여행", "요리"]


def test_pushed_model_answers_without_a_deploy(journey: Journey) -> None:
    """`cohost push` makes a model callable at once, and `cdk diff` shows it as a model to be added."""
    before = journey.endpoint()
    journey.models["pushed"] = dict(ADDED)

    runner = CliRunner()
    pushed = runner.invoke(cli.app, ["push", "pushed", "--catalog", str(journey.file)], catch_exceptions=False)
    status = runner.invoke(cli.app, ["status", "--json"], catch_exceptions=False)

    assert pushed.exit_code == 0, pushed.output
    assert journey.endpoint() == before
    assert journey.client().invoke("pushed", "train", {"candidate_labels": ["travel"]})
    assert '"not_in_outputs": [\n    "pushed"\n  ]' in status.stdout


def test_changed_model_rolls_to_a_new_generation(journey: Journey) -> None:
    """Changed content replaces model and config, keeps the endpoint's name, and keeps old archives.

    The change is the handler: the batching one answers what the server's own one answered.
    """
    old, before = journey.deployment(), journey.endpoint()
    stock, archives = journey.client().invoke("mdeberta", TEXTS), journey.keys(old)
    journey.models["mdeberta"]["handler"] = "batched"

    journey.cdk.deploy(journey.file)

    new, after = journey.deployment(), journey.endpoint()
    assert new.generation != old.generation
    assert (after["status"], after["data"]) == ("InService", new.model_data_url)
    assert after["config"] != before["config"]
    assert after["model"] != before["model"]
    assert journey.keys(old) == archives
    assert "pushed.tar.gz" in journey.keys(new)
    batched = journey.client().invoke("mdeberta", TEXTS)
    assert [item["label"] for item in batched] == [item["label"] for item in stock]
    assert [item["score"] for item in batched] == pytest.approx([item["score"] for item in stock], abs=1e-4)


def test_rollback_serves_the_kept_generation_and_back(journey: Journey) -> None:
    """`cohost rollback` serves stored archives without catalog or cdk, and a second call returns to the former ones."""
    live = journey.deployment()
    runner = CliRunner()
    stored = json.loads(runner.invoke(cli.app, ["rollback", "--list", "--json"], catch_exceptions=False).stdout)
    (earlier,) = stored["earlier"]
    assert stored["live"] == live.generation
    assert [line.partition(":")[0] for line in earlier["changes"]] == ["pushed", "mdeberta"]

    back = runner.invoke(cli.app, ["rollback", "--to", earlier["generation"]], catch_exceptions=False)

    assert back.exit_code == 0, back.output
    assert journey.deployment().generation == earlier["generation"]
    assert journey.endpoint()["data"] == journey.deployment().model_data_url
    assert journey.client().invoke("mdeberta", TEXTS[0])
    diff = journey.cdk.diff(journey.file)
    assert "[-] Generation" in diff
    assert "mdeberta" in diff
    again = runner.invoke(cli.app, ["rollback"], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert journey.deployment().generation == live.generation
    assert journey.client().invoke("mdeberta", TEXTS[0])


def test_failed_update_goes_back_to_the_old_generation(journey: Journey) -> None:
    """An update that SageMaker rejects changes neither archives nor answers."""
    good, old, before = journey.copy_of_catalog(), journey.deployment(), journey.endpoint()
    keys, everything = journey.keys(old), journey.all_keys(old)
    journey.models["mdeberta"]["required_memory_mb"] = 1792
    journey.catalog["endpoint"]["instance_type"] = "ml.p5.48xlarge"

    failed = journey.cdk.run(
        "deploy", "LmiCohostStack", "--require-approval", "never", catalog=journey.file, check=False
    )

    journey.catalog = good
    assert failed.returncode != 0
    assert "service limit 'ml.p5.48xlarge for endpoint usage' is 0 Instances" in failed.stdout
    stack = boto3.client("cloudformation").describe_stacks(StackName="LmiCohostStack")["Stacks"][0]
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert journey.deployment() == old
    assert journey.endpoint() == before
    assert journey.keys(old) == keys
    assert journey.all_keys(old) == everything
    assert journey.client().invoke("mdeberta", TEXTS[0])


def test_an_asset_over_5_mb_arrives_whole(journey: Journey) -> None:
    """An asset over 5 MB, which cdk uploads in parts as a role, arrives complete."""
    folder, content = journey.folder / "large", os.urandom(6 * 1024 * 1024)
    folder.mkdir()
    (folder / "asset.bin").write_bytes(content)
    app = aws_cdk.App(outdir=str(folder / "out"), analytics_reporting=False)
    stack = aws_cdk.Stack(app, "Large", env=aws_cdk.Environment(account=ACCOUNT_ID, region=DEFAULT_REGION))
    asset = aws_s3_assets.Asset(stack, "Asset", path=str(folder / "asset.bin"))
    aws_ssm.CfnParameter(
        stack, "Key", type="String", value=f"{asset.s3_bucket_name} {asset.s3_object_key}", name="large"
    )
    app.synth()
    built = ("--app", str(folder / "out"))

    journey.cdk._run(["deploy", "Large", "--require-approval", "never", *built], folder=folder)

    bucket, key = boto3.client("ssm").get_parameter(Name="large")["Parameter"]["Value"].split()
    stored = boto3.client("s3").get_object(Bucket=bucket, Key=key)
    assert stored["ETag"].endswith('-2"')
    assert stored["Body"].read() == content
    journey.cdk._run(["destroy", "Large", "--force", *built], folder=folder)


def test_destroy_leaves_nothing(journey: Journey) -> None:
    """`cdk destroy` leaves no object, bucket, endpoint, model, config, function, role, log group or stack."""
    journey.cdk.destroy()

    assert find_leftovers(boto3.Session()) == {}
