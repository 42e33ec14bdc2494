"""The CDK application: one stack for one catalog, and the checks that every synth runs.

The catalog is context `catalog` (`cdk synth -c catalog=FILE`), else the environment's COHOST_CATALOG, else the
product's own. The region is the one of the caller's AWS configuration. A catalog with weights in S3 has a second stack,
which is deployed first. The comparison designs that a catalog names are stacks beside its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from cohost.catalog_file import load_catalog
from cohost.errors import CohostError
from cohost.weights.store import WEIGHTS_STACK
from stacks import cpu_onnx_stack, inference_components_stack
from stacks.lmi_cohost_stack import STACK_ID, LmiCohostStack
from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack, needs_weights_stack

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.catalog_file import LoadedCatalog

DEFAULT_CATALOG = "model_configs/encoders.yaml"


def main() -> int:
    """Write the cloud assembly; a user's error is printed to stderr, line by line, and gives exit code 1."""
    app = cdk.App()
    try:
        add_stacks(app, load_catalog(_catalog_file(app)), cdk.Environment(region=_region()))
    except CohostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - what the cdk command shows of us
        return 1
    app.synth()
    return 0


def add_stacks(app: cdk.App, loaded: LoadedCatalog, environment: cdk.Environment) -> None:
    """Add every stack of a catalog to an application, and the checks that each synth runs.

    Raises:
        CohostError: the catalog asks for what cannot be built.
    """
    catalog = loaded.catalog
    stack = LmiCohostStack(app, STACK_ID, catalog=catalog, profiles=loaded.profiles, env=environment)
    if needs_weights_stack(catalog):
        stack.add_stack_dependency(LmiCohostWeightsStack(app, WEIGHTS_STACK, catalog=catalog, env=environment))
    _add_designs(app, catalog, environment)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def _add_designs(app: cdk.App, catalog: Catalog, environment: cdk.Environment) -> None:
    if catalog.designs is None:
        return
    if catalog.designs.cpu_onnx is not None:
        cpu_onnx_stack.CpuOnnxStack(app, cpu_onnx_stack.STACK_ID, catalog=catalog, env=environment)
    if catalog.designs.inference_components is not None:
        components = inference_components_stack
        components.InferenceComponentsStack(app, components.STACK_ID, catalog=catalog, env=environment)


def _catalog_file(app: cdk.App) -> Path:
    context: str | None = app.node.try_get_context("catalog")
    return Path(context or os.environ.get("COHOST_CATALOG") or DEFAULT_CATALOG)


def _region() -> str:
    return os.environ.get("CDK_DEFAULT_REGION") or os.environ.get("AWS_REGION") or "us-east-1"


if __name__ == "__main__":
    sys.exit(main())
