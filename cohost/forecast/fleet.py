"""Plan a fleet: place many models on as few endpoints as possible, by GPU memory, host memory and load.

The method is first-fit decreasing with three sizes per model (GPU memory, host memory, load); replicas of one model go
to different endpoints. A tree over the endpoints finds the first endpoint with enough free space, so placing n replicas
takes about n log n steps instead of n times the number of endpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cohost.archives.errors import shown
from cohost.catalog.yaml_source import read_plain_yaml
from cohost.errors import PlanError
from cohost.forecast.plan.memory import demand_of, usable_gpu_mib
from cohost.forecast.plan.workers import MIB, SERVER, gpu_worker, host_worker_mib, shared_engines
from cohost.forecast.pricing.price_list import HOURS_PER_MONTH
from cohost.hardware.instances import INSTANCES
from cohost.report.formats import usd_per_million

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cohost.catalog.models import Catalog
    from cohost.forecast.plan.profiles import Profile
    from cohost.forecast.plan.workers import Demand
    from cohost.forecast.pricing.price_list import PriceList
    from cohost.hardware.instances import Instance


Sizes = tuple[float, ...]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Item:
    """One model to place in a fleet: its sizes, and its number of replicas, which go to different endpoints."""

    name: str
    sizes: Sizes
    replicas: int = 1


@dataclass(kw_only=True)
class Bin:
    """One endpoint of a fleet: its capacity, the used part of each size, and its models' names in the order placed."""

    capacity: Sizes
    used: list[float]
    names: list[str] = field(default_factory=list)

    @property
    def fullest_share(self) -> float:
        """Return the used share of the size (GPU memory, host memory or time) that is used most."""
        return max(used / limit for used, limit in zip(self.used, self.capacity, strict=True) if limit > 0)

    @property
    def free(self) -> Sizes:
        """Return the free amount of each size (GPU memory, host memory, time) in the bin."""
        return tuple(limit - used for used, limit in zip(self.used, self.capacity, strict=True))

    def add(self, item: Item) -> None:
        """Add an item to the bin."""
        self.used = [used + size for used, size in zip(self.used, item.sizes, strict=True)]
        self.names.append(item.name)


def pack(items: Sequence[Item], capacity: Sizes) -> list[Bin]:
    """Place models (items) on equal endpoints (bins): the largest first, each in the first bin with enough free space.

    The largest item is the one that takes the largest share of an empty bin, in any of its sizes. The same input gives
    the same bins.

    Raises:
        PlanError: an item is larger than an empty bin.
    """
    ordered = sorted(items, key=lambda item: (-_share(item, capacity), item.name))
    bins: list[Bin] = []
    tree = _RoomTree(sum(item.replicas for item in items), capacity)
    for item in ordered:
        if _share(item, capacity) > 1 + _ROUNDING:
            raise PlanError(
                "model-too-large",
                f"models.{item.name}",
                f"takes {_share(item, capacity):.0%} of an empty endpoint",
                fix="fewer workers, or a larger type",
            )
        first = 0
        for _ in range(item.replicas):
            # All replicas have the same size, so no bin before the previous replica's bin has room; skip that bin too.
            index = tree.find(item.sizes, first)
            if index == len(bins):
                bins.append(Bin(capacity=capacity, used=[0.0] * len(capacity)))
            bins[index].add(item)
            tree.set(index, bins[index].free)
            first = index + 1
    return bins


def lower_bound(items: Sequence[Item], capacity: Sizes) -> int:
    """Return a lower bound on the number of bins, from the sum of each size and the most replicas of one item."""
    sums = [sum(item.sizes[axis] * item.replicas for item in items) for axis in range(len(capacity))]
    by_size = [math.ceil(total / limit - _ROUNDING) for total, limit in zip(sums, capacity, strict=True) if limit > 0]
    return max([*by_size, max((item.replicas for item in items), default=0)], default=0)


def _share(item: Item, capacity: Sizes) -> float:
    return max(
        size / limit if limit > 0 else math.inf
        for size, limit in zip(item.sizes, capacity, strict=True)
        if size > 0 or limit > 0
    )


class _RoomTree:
    """A binary tree over bins: for each size, a node holds the largest free space of the bins below the node.

    Bins that are still empty are leaves too, with their whole capacity free.
    """

    def __init__(self, bins: int, capacity: Sizes) -> None:
        self._leaves = 1 << max(bins - 1, 0).bit_length()
        self._room: list[Sizes] = [capacity] * (2 * self._leaves)

    def set(self, index: int, room: Sizes) -> None:
        """Set the free space of the bin with this index."""
        node = index + self._leaves
        self._room[node] = room
        while node > 1:
            node //= 2
            left, right = self._room[2 * node], self._room[2 * node + 1]
            room = tuple(map(max, left, right))
            if room == self._room[node]:
                return
            self._room[node] = room

    def find(self, sizes: Sizes, first: int) -> int:
        """Return the index of the first bin, from index `first` on, that has enough free space for all sizes."""
        stack = [(1, 0, self._leaves)]
        while stack:
            node, start, width = stack.pop()
            if start + width <= first or not _fits(sizes, self._room[node]):
                continue
            if width == 1:
                return start
            half = width // 2
            stack.append((2 * node + 1, start + half, half))
            stack.append((2 * node, start, half))
        msg = "there are as many bins as items"
        raise AssertionError(msg)


def _fits(sizes: Sizes, room: Sizes) -> bool:
    return all(size <= left + _ROUNDING for size, left in zip(sizes, room, strict=True))


USABLE_SHARE: Final = 0.9
"""The share of an endpoint's memory and time that the plan fills.

The rest allows for errors of the plan's estimates and for bursts of calls.
"""


class Load(BaseModel):
    """The load of one model: the items per second of all its callers together.

    `capacity` is the measured rate, in items per second, that one endpoint reaches with this model alone. `capacity` is
    required if `items_per_second` is above 0. `replicas` is the number of endpoints that serve the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items_per_second: float = Field(default=0.0, ge=0)
    capacity: float | None = Field(default=None, gt=0)
    replicas: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _load_has_a_capacity(self) -> Load:
        if self.items_per_second and self.capacity is None:
            raise ValueError("items_per_second needs capacity: measure it with `cohost bench --models NAME`")
        return self


@dataclass(frozen=True, kw_only=True)
class FleetOption:
    """The placement of a catalog's models on endpoints of one instance type.

    `placements` has one bin per endpoint. `usd_per_hour` is the price of all these endpoints, None if it is unknown.
    `usd_per_million` is the cost of a million items at the stated loads; None if the price is unknown or no model has a
    load.
    """

    instance_type: str
    placements: tuple[Bin, ...]
    usd_per_hour: float | None
    usd_per_million: float | None

    @property
    def usd_per_month(self) -> float | None:
        """Return the cost in USD of all endpoints for a month of 730 hours; None if the price is unknown."""
        return None if self.usd_per_hour is None else self.usd_per_hour * HOURS_PER_MONTH

    @property
    def fullest_share(self) -> float:
        """Return the largest used share of any size on any endpoint, relative to the part that the plan may fill."""
        return max((placement.fullest_share for placement in self.placements), default=0.0)

    @property
    def most_models(self) -> int:
        """Return the number of models on the endpoint that has the most models."""
        return max((len(placement.names) for placement in self.placements), default=0)

    @property
    def fewest_models(self) -> int:
        """Return the number of models on the endpoint that has the fewest models."""
        return min((len(placement.names) for placement in self.placements), default=0)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet plan: one option per instance type that can hold the models, the cheapest first.

    `left_out` has a line per instance type that cannot hold the models, with the reason.
    """

    models: int
    workers: int
    options: tuple[FleetOption, ...]
    left_out: tuple[str, ...]


def read_loads(path: Path) -> dict[str, Load]:
    """Read a YAML file of loads by model name: items_per_second with capacity, and optionally replicas.

    Raises:
        PlanError: the file cannot be read or a value is out of range.
    """
    try:
        data = read_plain_yaml(path) or {}
        return {str(name): Load.model_validate(values) for name, values in data.items()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError, AttributeError) as error:
        found = error.errors() if isinstance(error, ValidationError) else ()
        reasons = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found] or str(error).splitlines()
        raise PlanError(
            "loads-invalid",
            str(path),
            f"is not a file of loads ({reasons[0]})",
            allowed="model: {items_per_second: 20, capacity: 104, replicas: 2}",
            fix="write one such line for each model that has a load",
        ) from error


def plan_fleet(
    catalog: Catalog,
    profiles: Mapping[str, Profile],
    *,
    prices: PriceList,
    region: str,
    loads: Mapping[str, Load] | None = None,
    instance_types: Sequence[str] | None = None,
) -> Fleet:
    """Return a fleet plan with one option per instance type: the models placed on endpoints of that type.

    Without `instance_types`, the types are the catalog's own and all types with a known price in the region.

    Raises:
        PlanError: a model has no profile, or a load names a model that is not in the catalog.
    """
    if missing := [name for name, entry in catalog.models.items() if entry.model_id not in profiles]:
        raise PlanError(
            "profile-missing",
            "models",
            f"{shown(missing)} cannot be placed without a profile",
            fix=f"cohost models inspect {missing[0]} --write",
        )
    loads = loads or {}
    if strangers := [name for name in loads if name not in catalog.models]:
        allowed = shown(list(catalog.models))
        raise PlanError("load-stray", "--loads", f"{strangers[0]!r} is not a model", allowed=allowed, fix="remove it")
    chosen = instance_types or sorted({catalog.endpoint.instance_type, *prices.regions.get(region, {})})
    options, left_out = [], []
    for name in chosen:
        try:
            options.append(_place(catalog, profiles, loads, name, prices, region))
        except PlanError as error:
            left_out.append(f"{name}: {error}")
    options.sort(key=lambda option: (option.usd_per_hour is None, option.usd_per_hour or 0.0, len(option.placements)))
    workers = sum(entry.gpu.max_workers for entry in catalog.models.values())
    return Fleet(models=len(catalog.models), workers=workers, options=tuple(options), left_out=tuple(left_out))


def _place(
    catalog: Catalog,
    profiles: Mapping[str, Profile],
    loads: Mapping[str, Load],
    instance_type: str,
    prices: PriceList,
    region: str,
) -> FleetOption:
    if (instance := INSTANCES.get(instance_type)) is None:
        raise PlanError("instance-unknown", "memory", "is not known of this type")
    on_gpu = instance.gpus > 0
    demands = [
        demand_of(name, entry, profiles[entry.model_id], on_gpu=on_gpu) for name, entry in catalog.models.items()
    ]
    items = [_item(demand, loads.get(demand.name, Load()), instance) for demand in demands]
    placements = pack(items, _capacity(instance, demands, catalog.endpoint.engines_per_device))
    price = prices.find(region, instance_type)
    hour = None if price is None else price.usd_per_hour * len(placements)
    return FleetOption(
        instance_type=instance_type,
        placements=tuple(placements),
        usd_per_hour=hour,
        usd_per_million=usd_per_million(hour, sum(load.items_per_second for load in loads.values())),
    )


def _item(demand: Demand, load: Load, instance: Instance) -> Item:
    """Return a model as an item with three sizes: MiB of one GPU, MiB of the host, and share of the endpoint's time."""
    on_gpu = instance.gpus > 0
    gpu = gpu_worker(demand).peak * demand.workers if on_gpu else 0.0
    host = host_worker_mib(demand, on_gpu=on_gpu) * max(instance.gpus, 1)
    busy = load.items_per_second / load.capacity / load.replicas if load.capacity else 0.0
    return Item(name=demand.name, sizes=(gpu, host * demand.workers, busy), replicas=load.replicas)


def _capacity(instance: Instance, demands: Sequence[Demand], engines_per_device: int) -> tuple[float, float, float]:
    """Return one endpoint's capacity for models: MiB of one GPU, MiB of the host, and share of its time.

    If any model has `handler: shared`, every endpoint reserves the memory of the engine processes, including that of
    the largest forward pass of all models with that handler.
    """
    cache = max((demand.profile.checkpoint_bytes / MIB for demand in demands), default=0.0)
    host = instance.memory_mib - SERVER.system_mib - SERVER.router_mib - cache
    gpu = usable_gpu_mib(instance)
    engines = shared_engines(demands, count=engines_per_device, on_gpu=instance.gpus > 0)
    if engines is not None:
        gpu -= engines.gpu_total_mib + engines.gpu_check_mib
        host -= engines.host_total_mib * max(instance.gpus, 1) + engines.host_mib
    return max(gpu, 0.0) * USABLE_SHARE, max(host, 0.0) * USABLE_SHARE, USABLE_SHARE
