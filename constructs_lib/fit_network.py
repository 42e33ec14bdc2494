"""Can the containers fetch what they need from the network that the catalog puts them into?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.routing import SCALE_TO_ZERO
from constructs_lib.fit import Misfit, error, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cohost.catalog.models import Catalog, Network


def network_misfits(catalog: Catalog) -> Iterator[Misfit]:
    """What the models of a catalog need and their network does not give."""
    packed = [name for name, entry in catalog.models.items() if entry.weights == "archive"]
    if packed and catalog.endpoint.topology == SCALE_TO_ZERO:
        yield error(
            "weights-archive",
            f"models: {some(packed)} with weights: archive and topology {SCALE_TO_ZERO}, whose one archive holds the "
            "settings of all models; allowed: hub or s3; fix: weights: s3, or topology: multi-model",
        )
    network = catalog.network
    if network is None:
        return
    fetching = [name for name, entry in catalog.models.items() if entry.weights != "archive"]
    if network.isolation and fetching:
        yield error(
            "network-isolation",
            f"network.isolation: an isolated container reaches neither the Hub nor S3, so {some(fetching)}, whose "
            "archives hold settings only, could not load; allowed: models whose weights lie in their archives; fix: "
            "weights: archive (`cohost weights push`), or without isolation subnets that lead to S3 alone "
            "(network.route_tables or network.s3_endpoint) and weights: s3",
        )
    if network.in_vpc and not network.internet:
        yield from _without_internet(catalog, network)


def _without_internet(catalog: Catalog, network: Network) -> Iterator[Misfit]:
    on_hub = [name for name, entry in catalog.models.items() if entry.from_hub]
    if on_hub:
        yield error(
            "network-hub",
            f"network.vpc: containers in {network.vpc} cannot fetch {some(on_hub)} from the Hub, since nothing says "
            "that the subnets lead to the internet; allowed: weights in S3, or subnets with a way out; fix: weights: "
            "s3, or network.internet: true if the subnets' routes go to a NAT gateway",
        )
    if network.s3_endpoint is None and not network.route_tables:
        yield error(
            "network-s3",
            f"network.vpc: containers in {network.vpc} cannot fetch archives, since nothing says how the subnets reach "
            "S3; allowed: an S3 gateway endpoint, or subnets with a way out; fix: network.route_tables with the "
            "subnets' route tables to have one made, or network.s3_endpoint: given if the VPC has it",
        )
