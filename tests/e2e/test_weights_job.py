"""Weights in S3 with the real cdk command and the emulator: each test is the next step in the life of one deploy."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from botocore.config import Config
from emulation import emulation
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog_file import load_catalog
from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import Deployment, read_deployment
from cohost.weights.push import Pusher
from cohost.weights.source import Folders
from cohost.weights.store import WeightsStore, find_bucket
from local_aws.demo.script import find_leftovers
from local_aws.lmi.models.hub import Hub, default_roots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_aws.demo.cdk import Cdk

pytestmark = [pytest.mark.e2e, pytest.mark.steps, pytest.mark.timeout(300)]

OLD, NEW = "a" * 40, "b" * 40
MINILM, TINY, PACKED = "sentence-transformers/all-MiniLM-L6-v2", "acme/tiny-mdeberta-nli", "acme/tiny-xlmr-nli"
TEXT = "The train to Busan leaves at nine."
TOKEN = "hf_canaryCanaryCanary"


@dataclass(kw_only=True)
class WeightsJourney:
    """An emulator, a catalog with weights in S3, and the folders from which the weights are pushed."""

    cdk: Cdk
    folder: Path
    catalog: dict[str, Any]
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The catalog as a file."""
        path = self.folder / "catalog.yaml"
        path.write_text(yaml.safe_dump(self.catalog, sort_keys=False))
        return path

    @property
    def hub(self) -> Path:
        """Return a folder with both models."""
        return self.folder / "hub"

    @property
    def store(self) -> WeightsStore:
        """The weights' bucket."""
        return WeightsStore(boto3.client("s3"), find_bucket(load_catalog(self.file).catalog, boto3.Session()))

    def weights(self, *arguments: str) -> Any:
        """Return what `cohost weights …` prints as JSON."""
        command = ["weights", *arguments, "--catalog", str(self.file), "--json"]
        result = CliRunner().invoke(cli.app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def deployment(self) -> Deployment:
        """Read the names and addresses that the deployed stack has now in its outputs."""
        return read_deployment(boto3.client("cloudformation"))

    def ask(self, model: str) -> Any:
        """Return the answer of one model of the endpoint."""
        return CohostClient.from_stack(session=boto3.Session()).invoke(model, TEXT)


def catalog_of(**models: dict[str, Any]) -> dict[str, Any]:
    """A catalog with all weights in S3."""
    return {
        "endpoint": {
            "name": "lmi-weights",
            "instance_type": "ml.g5.xlarge",
            "image": "djl-inference:0.36.0-lmi26.0.0-cu130",
        },
        # An archive that is kept needs its weights, and here they are to become unused.
        "storage": {"keep_generations": 0},
        "weights": "s3",
        "hub_token": "secretsmanager:hub/token",
        "acknowledge": {"memory-unknown": "The models of this test have no profile."},
        "models": {
            name: {"required_memory_mb": 1024, "cpu": {"minWorkers": 1, "maxWorkers": 1}, **entry}
            for name, entry in models.items()
        },
    }


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeightsJourney]:
    """Start an emulator whose hub lacks the pushed models, so that only weights in S3 can be loaded."""
    folder = tmp_path_factory.mktemp("weights")
    for model_id in (MINILM, TINY, PACKED):
        ours = model_id.replace("acme/", "lmi-cohost/")
        shutil.copytree(Hub(default_roots()).resolve(ours), folder / "hub" / model_id)
    catalog = catalog_of(
        minilm={"model_id": MINILM, "revision": OLD, "task": "feature-extraction"},
        mdeberta={"model_id": TINY, "revision": OLD, "task": "text-classification"},
        packed={"model_id": PACKED, "revision": OLD, "task": "text-classification", "weights": "archive"},
    )
    (folder / "first.yaml").write_text(yaml.safe_dump(catalog))
    # What a user's shell holds must reach neither template nor archive.
    with pytest.MonkeyPatch.context() as patch, emulation(folder, folder / "first.yaml") as own:
        patch.setenv("HF_TOKEN", TOKEN)
        yield WeightsJourney(cdk=own.cdk, folder=folder, catalog=catalog)


def test_deploy_before_the_push_says_what_to_run(job: WeightsJourney) -> None:
    """A deploy before the push fails within seconds with the command to run."""
    job.cdk.bootstrap()

    done = job.cdk.run("deploy", "--all", "--require-approval", "never", catalog=job.file, check=False)

    assert done.returncode != 0
    assert "run `cohost weights push mdeberta minilm packed` and deploy again" in done.stdout
    stacks = {
        stack["StackName"]: stack["StackStatus"] for stack in boto3.client("cloudformation").describe_stacks()["Stacks"]
    }
    assert stacks["LmiCohostWeightsStack"] == "CREATE_COMPLETE"
    assert boto3.client("sagemaker").list_endpoints()["Endpoints"] == []


def test_interrupted_push_is_resumed(job: WeightsJourney) -> None:
    """A push that was stopped inside a large file uploads only the missing parts when repeated."""
    s3 = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
    sent: list[int] = []

    def interrupt(model: Any, **_: object) -> None:
        if model.name == "UploadPart":
            sent.append(1)
            if len(sent) > 3:
                raise KeyboardInterrupt

    s3.meta.events.register("before-call.s3", interrupt)
    pusher = Pusher(WeightsStore(s3, job.store.bucket), Folders([job.hub]), Silent())
    with pytest.raises(KeyboardInterrupt):
        pusher.push("minilm", load_catalog(job.file).catalog.models["minilm"])
    (half,) = job.weights("list")
    assert not half["whole"]

    pushed = {one["name"]: one for one in job.weights("push", "--from", str(job.hub))}

    assert 0 < pushed["minilm"]["sent"] < pushed["minilm"]["size"] - 2 * 16 * 1024 * 1024
    assert pushed["mdeberta"]["sent"] == pushed["mdeberta"]["size"]
    assert all(one["whole"] for one in job.weights("list"))
    assert {one["sent"] for one in job.weights("push", "--from", str(job.hub))} == {0}


def test_every_model_answers_with_weights_from_s3(job: WeightsJourney) -> None:
    """`cdk deploy --all` brings the endpoint up, and each model is loaded from the bucket."""
    job.cdk.run("deploy", "--all", "--require-approval", "never", catalog=job.file)

    job.answers = {name: job.ask(name) for name in ("minilm", "mdeberta", "packed")}
    assert len(job.answers["minilm"][0][0][0]) == 384
    assert all(sorted(job.answers[name][0]) == ["label", "score"] for name in ("mdeberta", "packed"))


def test_token_is_in_no_template_archive_or_description(job: WeightsJourney) -> None:
    """The token of the Hub is in no template, output of cdk, object in S3, description of SageMaker or log."""
    s3, deployment = boto3.client("s3"), job.deployment()
    sagemaker, logs = boto3.client("sagemaker"), boto3.client("logs")
    objects = [item["Key"] for item in s3.list_objects_v2(Bucket=deployment.bucket)["Contents"]]
    models = [model["ModelName"] for model in sagemaker.list_models()["Models"]]
    groups = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
    seen = [path.read_bytes() for path in job.cdk.out.rglob("*") if path.is_file()]
    seen += [s3.get_object(Bucket=deployment.bucket, Key=key)["Body"].read() for key in objects]
    seen += [str(sagemaker.describe_model(ModelName=name)).encode() for name in models]
    seen += [str(logs.filter_log_events(logGroupName=name)["events"]).encode() for name in groups]
    assert min(map(len, (objects, models, groups))) > 0
    assert len(seen) > 10
    assert not any(TOKEN.encode() in content for content in seen)


def test_new_revision_is_a_new_generation_and_keeps_the_old_weights(job: WeightsJourney) -> None:
    """A new revision changes the answers of the model, and the old weights stay in the bucket."""
    before = job.deployment()
    weights = job.hub / TINY / "model.safetensors"
    content = bytearray(weights.read_bytes())
    # The exponents of the last tensor's numbers, so that the answer is another one and still a number.
    for place in range(len(content) - 256, len(content), 4):
        content[place + 3] ^= 0x80
    weights.write_bytes(content)
    job.catalog["models"]["mdeberta"]["revision"] = NEW
    job.weights("push", "mdeberta", "--from", str(job.hub))

    job.cdk.deploy(job.file)

    assert job.deployment().generation != before.generation
    assert all(job.ask(name) == job.answers[name] for name in ("minilm", "packed"))
    assert job.ask("mdeberta") != job.answers["mdeberta"]
    assert {one["revision"] for one in job.weights("list") if one["model_id"] == TINY} == {OLD, NEW}


def test_prune_removes_what_nothing_uses(job: WeightsJourney) -> None:
    """`cohost weights prune` removes old weights that no stored generation names, and the endpoint still answers."""
    assert [(one["model_id"], one["revision"]) for one in job.weights("prune", "--dry-run")] == [(TINY, OLD)]

    job.weights("prune")
    job.weights("prune", "--all")

    assert {(one["model_id"], one["revision"]) for one in job.weights("list")} == {(MINILM, OLD), (TINY, NEW)}
    assert job.ask("mdeberta")
    # Its archive holds them, so the part that it was made of is only needed for the next one.
    assert job.ask("packed") == job.answers["packed"]


def test_destroy_leaves_nothing(job: WeightsJourney) -> None:
    """Deleting the endpoint, the weights and then their bucket leaves nothing that bills."""
    job.cdk.destroy()
    job.weights("prune", "--all")

    job.cdk.destroy("--all")

    assert find_leftovers(boto3.Session()) == {}


class Silent:
    """Progress that is not displayed."""

    def begin(self, what: str, total: int) -> None:
        """A step begins."""

    def advance(self, count: int) -> None:
        """Move the clock on."""
