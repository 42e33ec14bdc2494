"""The CDK app's stacks for a catalog: its endpoint, the weights' bucket, and the comparison designs that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from cohost.weights.store import WEIGHTS_STACK
from stacks.lmi_cohost_stack import STACK_ID, LmiCohostStack
from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack, needs_weights_stack

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.catalog_file import LoadedCatalog


def add_stacks(app: cdk.App, loaded: LoadedCatalog, environment: cdk.Environment) -> None:
    """Add every stack of a catalog to an application, and the checks that each synth runs.

    Raises:
        CohostError: a stack cannot be built from the catalog's settings.
    """
    catalog = loaded.catalog
    stack = LmiCohostStack(app, STACK_ID, catalog=catalog, profiles=loaded.profiles, env=environment)
    if needs_weights_stack(catalog):
        stack.add_stack_dependency(LmiCohostWeightsStack(app, WEIGHTS_STACK, catalog=catalog, env=environment))
    _add_designs(app, catalog, environment)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def _add_designs(app: cdk.App, catalog: Catalog, environment: cdk.Environment) -> None:
    # The designs' modules are imported here, because most catalogs name no design, and every synth would wait for them.
    if catalog.designs is None:
        return
    if catalog.designs.cpu_onnx is not None:
        from stacks import cpu_onnx_stack

        cpu_onnx_stack.CpuOnnxStack(app, cpu_onnx_stack.STACK_ID, catalog=catalog, env=environment)
    if catalog.designs.inference_components is not None:
        from stacks import inference_components_stack as components

        components.InferenceComponentsStack(app, components.STACK_ID, catalog=catalog, env=environment)
