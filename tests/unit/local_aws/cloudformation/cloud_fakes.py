"""Fake resources, of which each call can be made to fail."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from local_aws.cloudformation.context import Context
from local_aws.cloudformation.engine import Engine
from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources import ResourceTypes
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType
from local_aws.cloudformation.templates.schemas import Schema
from local_aws.kit.clients import Clients

if TYPE_CHECKING:
    import threading

    from local_aws.cloudformation.state import Stack

REGION = "us-east-1"


@dataclass
class World:
    """The fake resources: those that exist, the calls that were made, and the faults to raise.

    Args:
        existing: properties by physical id.
        calls: `(verb, logical id)` in order.
        gates: events that a call of this logical id waits for.
        old_properties: what the last call of each logical id was told of the properties before.
        faults: reasons by `(verb, logical id)`; such a call fails, after its effect when `half_done` names it too.
    """

    existing: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    half_done: set[tuple[str, str]] = field(default_factory=set)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    old_properties: dict[str, dict[str, Any]] = field(default_factory=dict)
    counter: int = 0

    def check(self, verb: str, request: Request) -> None:
        """Record a call, wait at its gate, and fail it if requested."""
        self.calls.append((verb, request.logical_id))
        self.old_properties[request.logical_id] = dict(request.old_properties)
        gate = self.gates.get(request.logical_id)
        if gate is not None and not gate.wait(60):
            raise AssertionError("the gate never opened")
        reason = self.faults.get((verb, request.logical_id))
        if reason is not None:
            raise ResourceFailure(reason)


class FakeThing(ResourceType):
    """`Key` and `Name` cannot change in place; `Value` can."""

    type = "AWS::Test::Thing"
    known = frozenset({"Key", "Name", "Shape", "Value", "Tags"})
    fixed: ClassVar[dict[str, str]] = {"Shape": "Shape is for life"}
    schema = Schema(
        properties=frozenset({*known, "Arn", "Elsewhere"}),
        create_only=frozenset({("Key",), ("Name",), ("Value", "Fixed")}),
        read_only=frozenset({("Arn",)}),
        attributes=frozenset({"Arn", "Value", "Absent"}),
        taggable=True,
        system_tags=True,
    )
    name_property = "Name"
    volatile = frozenset({"Value"})

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, request: Request) -> Outcome:
        """Give it the next number."""
        world = self._world
        if ("create", request.logical_id) in world.half_done:
            world.counter += 1
            physical_id = f"{request.logical_id}-{world.counter}"
            world.existing[physical_id] = dict(request.properties)
            request.initiated(physical_id)
        world.check("create", request)
        world.counter += 1
        physical_id = str(request.properties.get("Name", f"{request.logical_id}-{world.counter}"))
        if physical_id in world.existing:
            raise ResourceFailure(f"{physical_id} already exists")
        world.existing[physical_id] = dict(request.properties)
        return self._outcome(physical_id, request)

    def update(self, request: Request) -> Outcome:
        """Take over the properties."""
        self._world.check("update", request)
        self._world.existing[request.physical_id] = dict(request.properties)
        return self._outcome(request.physical_id, request)

    def delete(self, request: Request) -> None:
        """Forget it."""
        self._world.check("delete", request)
        self._world.existing.pop(request.physical_id, None)

    @staticmethod
    def _outcome(physical_id: str, request: Request) -> Outcome:
        attributes = {"Arn": f"arn:{physical_id}", "Value": request.properties.get("Value")}
        return Outcome(physical_id=physical_id, attributes=attributes)


class FakeStore(ResourceType):
    """A custom resource whose physical id follows from its `Content`."""

    type = "Custom::Store"
    schema = Schema()
    volatile = None
    rolls_back_by_update = True

    def __init__(self, world: World) -> None:
        self._world = world

    def unknown_properties(self, names: Any) -> list[str]:
        """Takes everything."""
        del names
        return []

    def create(self, request: Request) -> Outcome:
        """Publish the content."""
        self._world.check("create", request)
        return self._publish(request)

    def update(self, request: Request) -> Outcome:
        """Publish the content, under another id when it differs."""
        self._world.check("update", request)
        return self._publish(request)

    def delete(self, request: Request) -> None:
        """Remove the content."""
        self._world.check("delete", request)
        self._world.existing.pop(request.physical_id, None)

    def _publish(self, request: Request) -> Outcome:
        physical_id = f"store-{request.properties['Content']}"
        self._world.existing[physical_id] = dict(request.properties)
        return Outcome(physical_id=physical_id, attributes={"Url": f"s3://{physical_id}/"})


def make_engine(world: World) -> Engine:
    """An engine that knows the two fake types."""
    resource_types = ResourceTypes([FakeThing(world)], custom=FakeStore(world))
    clients = Clients(lambda: "http://127.0.0.1:9")
    return Engine(Context(region=REGION, resource_types=resource_types, clients=clients))


def thing(*, depends_on: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """A resource of the fake type for a template."""
    entry: dict[str, Any] = {"Type": "AWS::Test::Thing", "Properties": properties}
    return entry if depends_on is None else {**entry, "DependsOn": depends_on}


def body(resources: dict[str, Any], **sections: Any) -> str:
    """Return a template with these resources."""
    return json.dumps({"Resources": resources, **sections})


def settled(stack: Stack) -> Stack:
    """The stack once nothing is under way."""
    assert stack.settled.wait(60), stack.status
    return stack


def history(stack: Stack) -> list[str]:
    """The stack's events as `STATUS LogicalId`, oldest first."""
    return [f"{event.status} {event.logical_id}" for event in stack.events]
