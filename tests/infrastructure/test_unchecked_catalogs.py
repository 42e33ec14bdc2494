"""Checks of the constructs: a catalog whose settings do not fit together is rejected, even if made in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from fakes.refusals import refused
from synthesis import FLAGS, make_catalog, make_stack

from cohost.catalog.sections.scaling import Scaling
from cohost.errors import CatalogError
from stacks.cpu_onnx_stack import CpuOnnxStack
from stacks.inference_components_stack import InferenceComponentsStack
from stacks.lmi_cohost_stack import LmiCohostStack
from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack

if TYPE_CHECKING:
    from collections.abc import Callable

    from cohost.catalog.models import Catalog

ENTRY = {"model_id": "org/name", "task": "text-classification"}


def built_in_memory() -> Catalog:
    """Return a catalog that was built in memory with bounds that cross."""
    return make_catalog(scaling={"min": 3, "max": 2})


def changed_in_memory() -> Catalog:
    """Return a valid catalog that was changed in memory to bounds of another topology."""
    return make_catalog().model_copy(update={"scaling": Scaling(min=0, max=1)})


@pytest.mark.parametrize("stack", [LmiCohostStack, LmiCohostWeightsStack, CpuOnnxStack, InferenceComponentsStack])
@pytest.mark.parametrize(
    ("unchecked", "code"), [(built_in_memory, "bounds-crossed"), (changed_in_memory, "zero-not-allowed")]
)
def test_stack_of_an_unchecked_catalog_is_refused(
    stack: Callable[..., Any], unchecked: Callable[[], Catalog], code: str
) -> None:
    """A stack of an invalid catalog is rejected with the field before any resource is defined."""
    app = cdk.App(context=FLAGS, analytics_reporting=False)
    with refused(code, "scaling.min", kind=CatalogError):
        stack(app, "Unchecked", catalog=unchecked())
    assert app.node.children == []


def test_every_fault_is_a_line_of_its_own() -> None:
    """All faults of names and settings are reported at once, each in a line."""
    batched = {**ENTRY, "handler": "batched", "max_idle_time": 60}
    with pytest.raises(CatalogError) as caught:
        make_stack(make_catalog(models={"nli": ENTRY, "n-li": batched}))
    assert [(entry["code"], entry["field"]) for entry in caught.value.entries()] == [
        ("name-twice", "models.n-li"),
        ("setting-unused", "models.n-li.max_idle_time"),
    ]
