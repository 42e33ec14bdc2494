"""How many instances a catalog runs on: the fewest and the most that its scaling asks for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cohost.instances import INSTANCES
from cohost.routing import SCALE_TO_ZERO

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog


def instances_for(copies: int, instance_type: str) -> int:
    """The instances that so many copies of the one component need."""
    return math.ceil(copies / copies_per_instance(instance_type))


def copies_per_instance(instance_type: str) -> int:
    """The copies of the one component that an instance holds: a copy takes one GPU, or a CPU instance."""
    instance = INSTANCES.get(instance_type)
    return max(1 if instance is None else instance.gpus, 1)


def instance_bounds(catalog: Catalog) -> tuple[int, int]:
    """The fewest and the most instances at any time, an update's spare one not counted."""
    endpoint, scaling = catalog.endpoint, catalog.scaling
    if scaling is None:
        return endpoint.initial_instance_count, endpoint.initial_instance_count
    if endpoint.topology == SCALE_TO_ZERO:
        least, most = (instances_for(copies, endpoint.instance_type) for copies in (scaling.lowest, scaling.highest))
        return least, most
    return scaling.lowest, scaling.highest
