"""An endpoint that scales to zero, with the real cdk and the embedded AWS's clock: each test is the next step."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from emulation import emulation
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog_file import load_catalog
from cohost.deploy.preflight import run_checks
from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import Deployment, read_deployment
from cohost.errors import NoCapacityError
from cohost.forecast.pricing.price_list import load_prices
from cohost.report.samples import Outcome, load
from local_aws.demo.cdk import STACK
from local_aws.demo.script import find_leftovers
from local_aws.testing import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.deploy.local_aws import LocalServer
    from local_aws.demo.cdk import Cdk

pytestmark = [pytest.mark.e2e, pytest.mark.steps, pytest.mark.timeout(300)]

PROJECT = Path(__file__).parents[2]
CATALOG = PROJECT / "model_configs" / "offline-scale-to-zero.yaml"
NAMES = ("xlmr-large", "Ab", "a-b-c")
"""Names that the server changes, or that somebody may believe it changes."""
TEXT = "The train to Busan leaves at nine."
FAST, SLOW = 60, 1
"""Minutes of the service that pass in a minute of this machine."""


@dataclass(kw_only=True)
class ZeroJourney:
    """An emulator, the present catalog, and the models' first answers."""

    server: LocalServer
    cdk: Cdk
    folder: Path
    catalog: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(CATALOG.read_text()))
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The catalog as a file."""
        path = self.folder / "catalog.yaml"
        path.write_text(yaml.safe_dump(self.catalog, sort_keys=False))
        return path

    def deployment(self) -> Deployment:
        """Read the names and addresses that the deployed stack has now in its outputs."""
        return read_deployment(boto3.client("cloudformation"))

    def ask(self, model: str, **options: Any) -> Any:
        """Return the answer of one model of the endpoint."""
        return CohostClient.from_stack(session=boto3.Session()).invoke(model, TEXT, **options)

    def ask_all(self) -> dict[str, Any]:
        """Return the answer of each model of the endpoint."""
        return {model: self.ask(model) for model in self.catalog["models"]}

    def become(self, topology: str, scaling: dict[str, Any] | None) -> Any:
        """Write another topology with its scaling into the catalog, and return the former scaling."""
        before = self.catalog.pop("scaling", None)
        self.catalog["endpoint"]["topology"] = topology
        if scaling is not None:
            self.catalog["scaling"] = scaling
        return before

    def run_at(self, speed: float) -> None:
        """Set the speed of the clock of alarms, cooldowns and idle times."""
        self.server.ask("/_cohost/clock", {"speed": speed})

    def copies(self) -> int:
        """The copies of the component that serve now."""
        name = str(self.deployment().inference_component_name)
        described = boto3.client("sagemaker").describe_inference_component(InferenceComponentName=name)
        return described["RuntimeConfig"]["CurrentCopyCount"]

    def instances(self) -> int:
        """The instances behind the endpoint now."""
        endpoint = boto3.client("sagemaker").describe_endpoint(EndpointName=self.catalog["endpoint"]["name"])
        return endpoint["ProductionVariants"][0]["CurrentInstanceCount"]

    def refused_deploy(self) -> str:
        """Run a deploy that fails, and return what cdk prints."""
        done = self.cdk.run("deploy", STACK, "--require-approval", "never", catalog=self.file, check=False)
        assert done.returncode != 0
        return str(done.stdout)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZeroJourney]:
    """Start an emulator for this file, because its tests change the clock."""
    folder = tmp_path_factory.mktemp("zero")
    with emulation(folder, CATALOG) as own:
        made = ZeroJourney(server=own.server, cdk=own.cdk, folder=folder)
        made.catalog["scaling"]["idle_minutes"] = 5
        for name in NAMES[1:]:
            made.catalog["models"][name] = dict(made.catalog["models"]["mdeberta"])
        made.catalog["acknowledge"]["memory-unknown"] = "The catalog is written anew here, without profiles."
        yield made


def test_a_deploy_starts_one_copy_that_serves_all_models(job: ZeroJourney) -> None:
    """A deploy starts one copy, and every model answers through the usual client."""
    job.cdk.bootstrap()
    job.cdk.deploy(job.file)

    assert (job.copies(), job.instances()) == (1, 1)
    assert job.deployment().topology == "scale-to-zero"
    job.answers = job.ask_all()
    assert list(job.answers) == ["minilm", "mdeberta", "xlmr-large", "Ab", "a-b-c"]
    assert job.answers["Ab"] == job.answers["a-b-c"] == job.answers["mdeberta"] != job.answers["xlmr-large"]


@pytest.mark.parametrize("model", NAMES)
def test_the_command_calls_by_the_catalog_s_name(job: ZeroJourney, model: str) -> None:
    """`cohost invoke` names `xlmr-large`, and the container's `xlmr_large` answers."""
    done = CliRunner().invoke(cli.app, ["invoke", "--model", model, "--json", TEXT])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == job.answers[model]


def test_locust_calls_by_the_catalog_s_name(job: ZeroJourney) -> None:
    """The load test calls models by the catalog's names and sends the server's names."""
    out = job.folder / "load"
    command = [sys.executable, "-m", "locust", "-f", "load_tests/encoders.py", "--headless", "-u", "2", "-t", "4"]
    command += ["--models", ",".join(NAMES), "--catalog", str(job.file), "--out", str(out)]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)

    assert out.is_dir(), done.stdout + done.stderr
    samples, _ = load(out)
    assert set(samples["model"]) == set(range(len(NAMES)))
    assert set(samples["outcome"]) <= {Outcome.OK, Outcome.UNFINISHED}, done.stdout + done.stderr


def test_idle_time_ends_the_copy_and_then_the_instance(job: ZeroJourney) -> None:
    """An endpoint without a call for `idle_minutes` has no copy and no instance that bills."""
    job.run_at(FAST)
    wait_for(lambda: job.copies() == 0, limit_s=120)
    wait_for(lambda: job.instances() == 0, limit_s=120)
    job.run_at(SLOW)


def test_a_call_at_zero_fails_with_an_error_of_its_own(job: ZeroJourney) -> None:
    """A call at zero copies fails with its own error class."""
    with refused("no-capacity", kind=NoCapacityError):
        job.ask("minilm")


def test_a_call_that_waits_is_answered_in_the_end(job: ZeroJourney) -> None:
    """A waiting call at zero copies is answered after alarm, policy, instance start and load."""
    told: list[Any] = []
    job.run_at(FAST / 2)
    answer = job.ask("minilm", wake=True, wake_timeout_s=120, notice=told.append)
    job.run_at(SLOW)
    assert told, "a caller that waits is told so"
    assert answer == job.answers["minilm"]
    assert job.instances() >= 1


def test_a_changed_model_rolls_the_component(job: ZeroJourney) -> None:
    """A changed model gives the component a bundle at a new address; names and the answers of other models stay."""
    before = job.deployment()
    job.catalog["models"]["again"] = dict(job.catalog["models"]["mdeberta"])
    del job.catalog["models"]["xlmr-large"]

    job.cdk.deploy(job.file)

    after = job.deployment()
    assert after.generation != before.generation
    assert after.inference_component_name == before.inference_component_name
    answers = job.ask_all()
    assert answers["again"] == answers["mdeberta"] == job.answers["mdeberta"]
    assert answers["minilm"] == job.answers["minilm"]


def test_another_topology_under_the_same_name_is_refused_before_and_by_the_service(job: ZeroJourney) -> None:
    """Preflight rejects another topology under one name; a deploy without it fails, and calls are answered."""
    scaling = job.become("multi-model", None)

    checks = run_checks(boto3.Session(), "us-east-1", load_catalog(job.file).catalog, load_prices())
    (fault,) = [one.why for one in checks if one.check == "endpoint"]
    assert "is a scale-to-zero endpoint, the catalog has multi-model" in fault
    assert "cdk destroy" in fault
    said = job.refused_deploy()

    assert "inference component" in said.casefold()
    assert job.deployment().topology == "scale-to-zero"
    assert job.ask("minilm") == job.answers["minilm"]
    job.become("scale-to-zero", scaling)


def test_destroyed_and_deployed_anew_the_name_takes_the_other_topology(job: ZeroJourney) -> None:
    """After `cdk destroy` the same endpoint name can be deployed with the other topology."""
    job.cdk.destroy()
    assert find_leftovers(boto3.Session()) == {}
    scaling = job.become("multi-model", None)
    job.cdk.deploy(job.file)
    assert job.deployment().topology == "multi-model"
    assert job.ask("mdeberta") == job.answers["mdeberta"]

    job.become("scale-to-zero", scaling)
    job.refused_deploy()
    assert job.ask("mdeberta") == job.answers["mdeberta"]


def test_destroy_leaves_nothing(job: ZeroJourney) -> None:
    """`cdk destroy` leaves no policy, target, component, endpoint, config, model, bucket or log group."""
    job.cdk.destroy()
    assert find_leftovers(boto3.Session()) == {}
    cloudwatch, scaling = boto3.client("cloudwatch"), boto3.client("application-autoscaling")
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert boto3.client("sagemaker").list_inference_components()["InferenceComponents"] == []
