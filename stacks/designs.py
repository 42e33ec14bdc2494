"""The parts that the stacks of the comparison designs share: a catalog for the design's endpoint, and its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cohost.forecast.pricing.price_list import price_note, today
from cohost.hardware.images import parse_image
from cohost.hardware.instances import has_own_disks
from cohost.routing import MULTI_MODEL
from constructs_lib.checks.findings import Misfit, misfits
from stacks.parts import add_findings

if TYPE_CHECKING:
    import aws_cdk as cdk

    from cohost.catalog.models import Catalog
    from cohost.forecast.pricing.price_list import PriceList
    from cohost.hardware.images import ImageUri


_OF_MULTI_MODEL: Final = ("image-multi-model", "instance-multi-model")


def as_own(catalog: Catalog, **endpoint: object) -> Catalog:
    """Return the catalog without scaling, and with its endpoint changed to topology multi-model and by the keywords.

    The catalog's KMS key for volumes is left out if the design's instance type has local disks, because no KMS key of
    the account encrypts local disks.
    """
    changed = catalog.endpoint.model_copy(update={"topology": MULTI_MODEL, **endpoint})
    if has_own_disks(changed.instance_type):
        changed = changed.model_copy(update={"kms_key": None})
    return catalog.model_copy(update={"endpoint": changed, "scaling": None})


def annotate(stack: cdk.Stack, own: Catalog, uri: ImageUri, prices: PriceList, *, multi_model: bool) -> None:
    """Report objections to the design's image, instance type and region, and an unknown price, as stack findings."""
    endpoint = own.endpoint
    found = misfits(endpoint, parse_image(endpoint.image), uri, stack.region)
    price = prices.find(stack.region, endpoint.instance_type)
    if note := price_note(price, stack.region, endpoint.instance_type, today()):
        name = "price-unknown" if price is None else "price-old"
        found.append(Misfit(level="warning", name=name, message=f"designs: {note}"))
    skipped = () if multi_model else _OF_MULTI_MODEL
    add_findings(stack, (misfit for misfit in found if misfit.name not in skipped), own.acknowledge)
