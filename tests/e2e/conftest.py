"""One embedded AWS for the end-to-end tests, and the steps that depend on each other."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from emulation import emulation
from fakes.browser import Browser

from cohost.endpoint.client import CohostClient
from cohost.endpoint.stack_outputs import Deployment, read_deployment
from cohost.forecast.plan.profiles import profiles_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.deploy.local_aws import LocalServer
    from local_aws.demo.cdk import Cdk

OFFLINE = Path(__file__).parents[2] / "model_configs" / "offline.yaml"


@dataclass(kw_only=True)
class Journey:
    """The life of one deploy: the emulator in which it runs, its present catalog, and the cdk command."""

    server: LocalServer
    cdk: Cdk
    folder: Path
    catalog: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(OFFLINE.read_text()))

    @property
    def file(self) -> Path:
        """The catalog as a file."""
        path = self.folder / "catalog.yaml"
        path.write_text(yaml.safe_dump(self.catalog, sort_keys=False))
        shutil.copyfile(profiles_path(OFFLINE), profiles_path(path))
        return path

    @property
    def models(self) -> dict[str, Any]:
        """The catalog's models, to change."""
        models: dict[str, Any] = self.catalog["models"]
        return models

    def copy_of_catalog(self) -> dict[str, Any]:
        """Return a copy of the catalog, from which a test can restore it."""
        return copy.deepcopy(self.catalog)

    def deployment(self) -> Deployment:
        """Read the names and addresses that the deployed stack has now in its outputs."""
        return read_deployment(boto3.client("cloudformation"))

    def client(self) -> CohostClient:
        """A client for the stack as it is now."""
        return CohostClient.from_stack(session=boto3.Session())

    def endpoint(self) -> dict[str, Any]:
        """Return the names of the endpoint's config and model, and its status."""
        sagemaker = boto3.client("sagemaker")
        endpoint = sagemaker.describe_endpoint(EndpointName="lmi-cohost")
        config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        model = sagemaker.describe_model(ModelName=config["ProductionVariants"][0]["ModelName"])
        return {
            "config": endpoint["EndpointConfigName"],
            "model": model["ModelName"],
            "data": model["Containers"][0]["ModelDataUrl"] if "Containers" in model else _data(model),
            "status": endpoint["EndpointStatus"],
        }

    def keys(self, deployment: Deployment) -> list[str]:
        """The objects of a deployment's generation."""
        page = boto3.client("s3").list_objects_v2(
            Bucket=deployment.bucket, Prefix=f"{deployment.prefix}{deployment.generation}/"
        )
        return [item["Key"].rpartition("/")[2] for item in page.get("Contents", [])]

    def all_keys(self, deployment: Deployment) -> list[str]:
        """Return every key below the prefix of a deployment."""
        page = boto3.client("s3").list_objects_v2(Bucket=deployment.bucket, Prefix=deployment.prefix)
        return [item["Key"] for item in page.get("Contents", [])]


def _data(model: Any) -> str:
    return str(model["PrimaryContainer"]["ModelDataUrl"])


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Start a browser with its own profile."""
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """Start an emulator on a free port, which this process's boto3 also uses, and stop it after the tests."""
    folder = tmp_path_factory.mktemp("journey")
    with emulation(folder, OFFLINE) as own:
        yield Journey(server=own.server, cdk=own.cdk, folder=folder)


@pytest.fixture(autouse=True)
def _stop_at_the_first_broken_step(request: pytest.FixtureRequest) -> None:
    """Skip the steps after a failed one in a file of steps, because each step needs the ones before it."""
    broken = getattr(request.module, "_broken_step", None)
    if broken and request.node.get_closest_marker("steps"):
        pytest.fail(f"an earlier step failed: {broken}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember the first step of a file that failed, in setup or call."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    module = item.getparent(pytest.Module)
    if report.failed and module is not None and not hasattr(module.obj, "_broken_step"):
        module.obj._broken_step = item.name
