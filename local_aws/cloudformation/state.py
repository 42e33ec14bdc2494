"""The state of the CloudFormation engine: stacks, their resources, events and change sets."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local_aws.cloudformation.templates.parameters import Parameter
    from local_aws.cloudformation.templates.template import ResourceDefinition, Template
    from local_aws.kit.access_keys import AccessKey


STACK_TYPE: Final = "AWS::CloudFormation::Stack"
REVIEW: Final = "REVIEW_IN_PROGRESS"


def now() -> datetime:
    """Return the present time in UTC, for events and answers."""
    return datetime.now(tz=UTC)


@dataclass(frozen=True, kw_only=True)
class Live:
    """An existing physical resource, with the properties of its last create or update and its attributes."""

    type: str
    physical_id: str
    properties: Mapping[str, Any]
    attributes: Mapping[str, Any]
    tags: Mapping[str, str]


@dataclass(kw_only=True)
class StackResource:
    """A resource of a stack.

    Args:
        definition: the resource's entry in the template.
        status: the resource's last status.
        reason: the reason of the status.
        physical_id: the id of the physical resource, which may be known before the resource is complete.
        live: the existing physical resource; None until there is one.
        attempted: the properties of a failed update, which may be in force partly or wholly.
        updated: the time at which the resource reached the status.
    """

    definition: ResourceDefinition
    status: str
    reason: str | None = None
    physical_id: str | None = None
    live: Live | None = None
    attempted: Mapping[str, Any] | None = None
    updated: datetime = field(default_factory=now)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a stack: a status that the stack or one of its resources has reached."""

    event_id: str
    logical_id: str
    physical_id: str
    type: str
    status: str
    reason: str | None
    timestamp: datetime
    token: str | None
    properties: str | None


@dataclass(frozen=True, kw_only=True)
class Target:
    """The template, parameters and tags that a stack is to have after an operation."""

    template: Template
    parameters: Mapping[str, Parameter]
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Obsolete:
    """A physical resource that its stack no longer uses; a clean-up deletes or retains it."""

    definition: ResourceDefinition
    live: Live


@dataclass(kw_only=True)
class Journal:
    """The record of a running operation, from which a rollback restores the stack.

    Args:
        previous: the target of the stack before the operation; None when the stack is being created.
        before: the stack's existing resources before the operation, by logical id.
        definitions: the resources' definitions before the operation, by logical id.
        obsolete: the resources that the operation replaced.
        discarded: the resources that the operation made and its rollback replaced again.
        updated: the logical ids of the resources whose update in place was begun.
    """

    previous: Target | None
    before: Mapping[str, Live]
    definitions: Mapping[str, ResourceDefinition]
    obsolete: list[Obsolete] = field(default_factory=list)
    discarded: list[Obsolete] = field(default_factory=list)
    updated: set[str] = field(default_factory=set)


@dataclass(kw_only=True)
class ChangeSet:
    """A change set: a planned update of a stack, which can be executed once."""

    arn: str
    name: str
    type: str
    target: Target
    request: Mapping[str, Any]
    status: str
    execution_status: str
    reason: str | None
    changes: Sequence[Mapping[str, Any]]
    created: datetime = field(default_factory=now)


@dataclass(kw_only=True)
class Stack:
    """One stack. A stack's operations run one at a time; `settled` is set while no operation runs.

    `ended` has the resources of a deleted stack, deleted and retained ones: CloudFormation still lists them. `caller`
    is the access key that signed the last request to change the stack; None if no request caused the change.
    """

    arn: str
    name: str
    region: str
    status: str = REVIEW
    reason: str | None = None
    target: Target | None = None
    resources: dict[str, StackResource] = field(default_factory=dict)
    ended: dict[str, StackResource] = field(default_factory=dict)
    outputs: list[dict[str, str]] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    change_sets: dict[str, ChangeSet] = field(default_factory=dict)
    journal: Journal | None = None
    options: dict[str, Any] = field(default_factory=dict)
    termination_protection: bool = False
    created: datetime = field(default_factory=now)
    updated: datetime | None = None
    deleted: datetime | None = None
    token: str | None = None
    caller: AccessKey | None = None
    settled: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Set the event `settled`, since no operation runs on a new stack."""
        self.settled.set()

    @property
    def open_journal(self) -> Journal:
        """The journal of the running operation, which must not be a deletion: a deletion may have no journal."""
        assert self.journal is not None  # noqa: S101 - see above
        return self.journal

    @property
    def exports(self) -> dict[str, str]:
        """The stack's exported values by export name."""
        return {o["ExportName"]: o["OutputValue"] for o in self.outputs if "ExportName" in o}

    def set_status(self, status: str, reason: str | None = None) -> None:
        """Set the status of the stack itself, and add an event for the status."""
        self.status, self.reason = status, reason
        self._add_event(self.name, self.arn, STACK_TYPE, status, reason, None)

    def set_resource_status(
        self, resource: StackResource, status: str, reason: str | None = None, *, properties: str | None = None
    ) -> None:
        """Set the status of a resource, and add an event for the status to the stack."""
        resource.status, resource.reason, resource.updated = status, reason, now()
        definition = resource.definition
        self._add_event(definition.logical_id, resource.physical_id or "", definition.type, status, reason, properties)

    def _add_event(
        self, logical_id: str, physical_id: str, type_name: str, status: str, reason: str | None, properties: str | None
    ) -> None:
        with self._lock:
            # Answers carry milliseconds, and the cdk CLI sorts events by time: no two may have the same millisecond.
            stamp = now()
            if self.events:
                stamp = max(stamp, self.events[-1].timestamp + timedelta(milliseconds=1))
            self.events.append(
                Event(
                    event_id=f"{logical_id}-{status}-{uuid.uuid4()}",
                    logical_id=logical_id,
                    physical_id=physical_id,
                    type=type_name,
                    status=status,
                    reason=reason,
                    timestamp=stamp,
                    token=self.token,
                    properties=properties,
                )
            )
