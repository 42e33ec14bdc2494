"""Every catalog of model_configs on the embedded AWS: deployed, called, changed in one model, scaled, and removed.

`make examples` runs all of them, `make test` a few. The templates are synthesised in this process and given to
CloudFormation as the `cdk` command does, which takes a tenth of the command's time; other files drive the command.
Models of the Hub are stood in for by tiny ones under the same ids, and a VPC is made for the ids of one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from fakes.assembly import FLAGS, REGION, publish_stack
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.catalog.yaml_source import read_yaml
from cohost.catalog_file import load_catalog
from cohost.deploy.cleanup.resource_types import Polling
from cohost.deploy.cleanup.work import clean_up
from cohost.deploy.preflight import run_checks
from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import read_deployment
from cohost.errors import NoCapacityError
from cohost.forecast.plan.profiles import SUFFIX, profiles_path
from cohost.forecast.pricing.price_list import load_prices
from cohost.weights.store import WEIGHTS_STACK
from local_aws.demo.cdk import STACK
from local_aws.demo.script import CALLS, find_leftovers
from local_aws.lmi.models.hub import default_roots
from local_aws.testing import wait_for
from local_aws.testing.running import running
from stacks.application import add_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.catalog.models import Catalog
    from cohost.catalog_file import LoadedCatalog
    from local_aws.testing.running import FrontDoor

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("model_configs", "model_configs/examples")
    for path in (ROOT / folder).glob("*.yaml")
    if not path.name.endswith(SUFFIX)
)
ALWAYS = ("encoders",)
# Models that need no network: this project's, and one of a Python package.
OURS = ("lmi-cohost/", "sentence-transformers/all-MiniLM-L6-v2")
# Waits between the steps of a guarded update, and idle time, pass at the speed of FAST; all else in real time.
FAST, SLOW = 600, 1


@dataclass(kw_only=True)
class Account:
    """An embedded AWS, the hub that its containers load models from, and a folder for catalogs."""

    door: FrontDoor
    hub: Path
    folder: Path

    @contextlib.contextmanager
    def at_speed(self, speed: float) -> Iterator[None]:
        """Let the emulation's clock run at a speed in the block."""
        self.door.set_speed(speed)
        try:
            yield
        finally:
            self.door.set_speed(SLOW)

    def catalog(self, path: Path) -> Path:
        """Copy a catalog; ids of a VPC become those of a VPC made for it, as a user would put the own ids there."""
        content = read_yaml(path).data
        if "network" in content:
            content["network"] |= self._network()
        for entry in content["models"].values():
            # The embedded container has no GPU; one worker a model is what a GPU has.
            entry["cpu"] = {"minWorkers": 1, "maxWorkers": 1}
        file = self.folder / path.name
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        profiles_path(file).write_bytes(profiles_path(path).read_bytes())
        for entry in content["models"].values():
            self._stand_in(entry["model_id"], entry["task"])
        return file

    def _stand_in(self, model_id: str, task: str) -> None:
        folder = self.hub / model_id
        if folder.exists() or model_id.startswith(OURS):
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        name = "tiny-embed" if task == "feature-extraction" else "tiny-minilm-nli"
        name = "tiny-mdeberta-nli" if "deberta" in model_id.casefold() else name
        folder.symlink_to(default_roots()[0] / "lmi-cohost" / name)

    @staticmethod
    def _network() -> dict[str, Any]:
        ec2 = boto3.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24")["Subnet"]["SubnetId"] for n in (1, 2)]
        group = ec2.create_security_group(VpcId=vpc, GroupName="lmi", Description="containers")["GroupId"]
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        return {"vpc": vpc, "subnets": subnets, "security_groups": [group], "route_tables": [table]}


@dataclass(kw_only=True)
class Life:
    """One catalog's stacks in an account."""

    account: Account
    file: Path

    @property
    def loaded(self) -> LoadedCatalog:
        """The catalog as its file says now."""
        return load_catalog(self.file)

    def deploy(self) -> list[str]:
        """Create or update the catalog's stacks, the bucket of weights first; push the weights in between."""
        out = self.account.folder / f"{self.file.stem}.out"
        app = cdk.App(context=FLAGS, analytics_reporting=False, outdir=str(out))
        add_stacks(app, self.loaded, cdk.Environment(region=REGION))
        stacks = sorted((stack.stack_name for stack in app.synth().stacks), key=lambda name: name != WEIGHTS_STACK)
        with self.account.at_speed(FAST if self.loaded.catalog.deployment is not None else SLOW):
            for stack in stacks:
                self._change(publish_stack(self.account.door, out, stack))
                if stack == WEIGHTS_STACK:
                    self._push()
        return [stack for stack in stacks if stack != WEIGHTS_STACK]

    def _change(self, published: dict[str, str]) -> None:
        cloudformation, name = self.account.door.client("cloudformation"), published["StackName"]
        there = name in [one["StackName"] for one in cloudformation.describe_stacks()["Stacks"]]
        change = cloudformation.update_stack if there else cloudformation.create_stack
        try:
            change(**published, Capabilities=["CAPABILITY_NAMED_IAM"])
        except ClientError as error:
            assert "No updates are to be performed" in str(error)  # noqa: PT017 - the other outcome is a change
            return
        self.account.door.settle("UPDATE_COMPLETE" if there else "CREATE_COMPLETE", name)

    def _push(self) -> None:
        command = ["weights", "push", "--from", str(self.account.hub), "--catalog", str(self.file)]
        result = CliRunner().invoke(cli.app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output

    def check_answers(self, stack: str) -> None:
        """Call each model of a stack with the texts of its task; each text gets an answer."""
        client = CohostClient.from_stack(stack, session=boto3.Session())
        for name, entry in self.loaded.catalog.models.items():
            inputs, parameters = CALLS[entry.task]
            assert len(client.invoke(name, inputs, parameters)) == len(inputs), name

    def change_one_model(self) -> None:
        """Give the first model another setting."""
        content = read_yaml(self.file).data
        next(iter(content["models"].values()))["job_queue_size"] = 123
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    @staticmethod
    def remove(stacks: list[str]) -> None:
        """`cohost cleanup --everything`: the stacks go, and then what they keep, such as weights and captured calls."""
        polling = Polling(poll_s=0.05, limit_s=120)
        for stack in (*stacks, WEIGHTS_STACK):
            done = clean_up(boto3.Session(), stack, polling, everything=True)
            assert (done.faults, done.after.stacks, done.after.resources) == ((), (), ())


def bootstrap(door: FrontDoor) -> None:
    """Leave the parameter by which preflight and the stacks know that `cdk bootstrap` was run."""
    version = "/cdk-bootstrap/hnb659fds/version"
    door.client("ssm").put_parameter(Name=version, Value="30", Type="String", Overwrite=True)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """One embedded AWS for all catalogs, bootstrapped; boto3 and the product find it by the environment."""
    folder = tmp_path_factory.mktemp("examples")
    (hub := folder / "hub").mkdir()
    with (
        running(folder / "state", None, hub_roots=(hub, *default_roots())) as door,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        for name in ("AWS_PROFILE", "COHOST_CATALOG", "COHOST_HUB"):
            patch.delenv(name, raising=False)
        for name, value in door.environment().items():
            patch.setenv(name, value)
        bootstrap(door)
        yield Account(door=door, hub=hub, folder=folder)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in ALWAYS else pytest.mark.exhaustive)
        for path in FILES
        if "onnx" not in path.stem
    ],
)
def test_a_catalog_lives_and_leaves_nothing(account: Account, path: Path) -> None:
    """Deploy, call every model, change one model, call again, scale where it scales, remove: nothing is left."""
    life = Life(account=account, file=account.catalog(path))
    catalog = life.loaded.catalog
    assert doubts(catalog) == {}
    stacks = life.deploy()
    assert STACK in stacks
    first = read_deployment(boto3.client("cloudformation"))
    for stack in stacks:
        life.check_answers(stack)

    life.change_one_model()
    life.deploy()
    assert read_deployment(boto3.client("cloudformation")).generation != first.generation
    for stack in stacks:
        life.check_answers(stack)
    if catalog.scaling is not None:
        scale(account, catalog)

    life.remove(stacks)
    assert find_leftovers(boto3.Session()) == {}


def doubts(catalog: Catalog) -> dict[str, str]:
    """Return the checks of `cohost preflight` that fail or could not run; images are left out, as there are none."""
    session: Any = boto3.Session()
    checks = run_checks(session, REGION, catalog, load_prices())
    of_account = takewhile(lambda one: not one.check.startswith("model "), checks)
    return {one.check: one.why for one in of_account if one.outcome != "pass" and one.check not in {"image", "price"}}


def scale(account: Account, catalog: Catalog) -> None:
    """Idle time takes the last copy away, a call at zero wakes it, and is answered in the end."""
    name = catalog.endpoint.name
    sagemaker = boto3.client("sagemaker")

    def copies(member: str = "CurrentCopyCount") -> int:
        (component,) = sagemaker.list_inference_components(EndpointNameEquals=name)["InferenceComponents"]
        described = sagemaker.describe_inference_component(InferenceComponentName=component["InferenceComponentName"])
        return int(described["RuntimeConfig"][member])

    def woken() -> bool:
        with refused("no-capacity", kind=NoCapacityError):
            client.invoke(model, text)
        return copies("DesiredCopyCount") > 0

    client = CohostClient.from_stack(session=boto3.Session())
    model, text = next(iter(catalog.models)), "The train to Busan leaves at nine."
    with account.at_speed(120):
        wait_for(lambda: copies() == 0, limit_s=120)
    with account.at_speed(30):
        wait_for(woken, limit_s=120, pause_s=1)
    # The copy starts in real time, in which it does not go again for having no calls.
    assert client.invoke(model, text, wake=True, wake_timeout_s=240, notice=lambda _: None)


@pytest.mark.parametrize("path", [path for path in FILES if "onnx" in path.stem], ids=lambda path: path.stem)
def test_a_catalog_that_needs_an_export_says_so(
    account: Account, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archives of the CPU design come from `cohost export-onnx`, without which nothing is deployed."""
    monkeypatch.chdir(tmp_path)
    life = Life(account=account, file=account.catalog(path))
    with refused("export-missing") as caught:
        life.deploy()
    assert "cohost export-onnx" in str(caught.value)
