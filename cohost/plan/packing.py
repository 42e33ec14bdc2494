"""First-fit decreasing for bins with several sizes, with replicas of one item in different bins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cohost.plan.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

Sizes = tuple[float, ...]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something to place: what it takes of each size, and in how many bins it must be, once in each."""

    name: str
    sizes: Sizes
    replicas: int = 1


@dataclass(kw_only=True)
class Bin:
    """A bin: its capacity, what is used of it, and the names of its items in the order they came."""

    capacity: Sizes
    used: list[float]
    names: list[str] = field(default_factory=list)

    @property
    def fullest_share(self) -> float:
        """The largest used share of any of its sizes."""
        return max(used / limit for used, limit in zip(self.used, self.capacity, strict=True) if limit > 0)

    @property
    def free(self) -> Sizes:
        """What is left of each size."""
        return tuple(limit - used for used, limit in zip(self.used, self.capacity, strict=True))

    def add(self, item: Item) -> None:
        """Take an item."""
        self.used = [used + size for used, size in zip(self.used, item.sizes, strict=True)]
        self.names.append(item.name)


def pack(items: Sequence[Item], capacity: Sizes) -> list[Bin]:
    """Place items into equal bins, the largest first, each into the first bin that has room for it.

    An item's size is the largest share that it takes of any of the bin's sizes. Equal input gives equal bins.

    Raises:
        PlanError: an item is larger than an empty bin.
    """
    ordered = sorted(items, key=lambda item: (-_share(item, capacity), item.name))
    bins: list[Bin] = []
    tree = _RoomTree(sum(item.replicas for item in items), capacity)
    for item in ordered:
        if _share(item, capacity) > 1 + _ROUNDING:
            raise PlanError(f"models.{item.name} alone does not fit; it takes {_share(item, capacity):.0%} of it")
        first = 0
        for _ in range(item.replicas):
            # All replicas are of one size, so no bin before the last one's had room; only that one must be skipped.
            index = tree.find(item.sizes, first)
            if index == len(bins):
                bins.append(Bin(capacity=capacity, used=[0.0] * len(capacity)))
            bins[index].add(item)
            tree.set(index, bins[index].free)
            first = index + 1
    return bins


def lower_bound(items: Sequence[Item], capacity: Sizes) -> int:
    """The fewest bins that any placement needs: for the sum of each size, and for the item with most replicas."""
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
    """A binary tree over bins whose nodes hold the most room of each size below them; bins not yet begun are empty."""

    def __init__(self, bins: int, capacity: Sizes) -> None:
        self._leaves = 1 << max(bins - 1, 0).bit_length()
        self._room: list[Sizes] = [capacity] * (2 * self._leaves)

    def set(self, index: int, room: Sizes) -> None:
        """Say what room a bin has left."""
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
        """The first bin from `first` on that has room for all sizes."""
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
