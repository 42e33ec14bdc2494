"""The base class of all resource types, the engine's requests to them, and helpers for API calls and physical names.

Generated physical names have CloudFormation's form, `<stack>-<logical id>-<random>`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import string
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ListShape, MapShape, StructureShape

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.templates.schemas import Schema, schema_of
from local_aws.kit.account import ACCOUNT_ID, PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from botocore.model import Shape

    from local_aws.kit.access_keys import AccessKey
    from local_aws.kit.clients import Clients


RANDOM_LENGTH: Final = 12
_ALPHABET: Final = string.ascii_uppercase + string.digits


def physical_name(stack_name: str, logical_id: str, *, limit: int, lower: bool = False, separator: str = "-") -> str:
    """Make a physical name of at most `limit` characters: stack name and logical id are cut, the random part is not."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_LENGTH))
    room = limit - RANDOM_LENGTH - 2 * len(separator)
    stack, resource = stack_name, logical_id
    if len(stack) + len(resource) > room:
        resource = resource[: max(room - len(stack), room // 2)]
        stack = stack[: room - len(resource)]
    name = separator.join((stack, resource, suffix))
    return name.lower() if lower else name


def stack_arn(region: str, stack_name: str) -> str:
    """Make the ARN of a new stack, which is the stack's id."""
    return f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT_ID}:stack/{stack_name}/{uuid.uuid4()}"


def change_set_arn(region: str, name: str) -> str:
    """Make the ARN of a new change set, which is the change set's id."""
    return f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT_ID}:changeSet/{name}/{uuid.uuid4()}"


class Initiated(Protocol):
    """The callback that receives a new resource's physical id and attributes as soon as they are known."""

    def __call__(self, physical_id: str, **attributes: Any) -> None:  # an attribute has any type
        """Record the physical id and the attributes."""


def _nobody(physical_id: str, **attributes: Any) -> None:
    """Do nothing: nobody wants to know the physical id before the create has ended."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of one create, update or delete that the engine asks a resource type to do.

    Args:
        type: the resource's type in the template, which for custom resources is any name.
        logical_id: the resource's name in the template.
        stack_name: the stack's name, for generated names.
        stack_arn: the stack's id.
        region: the stack's region.
        properties: the resolved properties.
        tags: the stack's tags, to be put on resources that take tags.
        clients: boto3 clients that call the emulator.
        signer: the key that signs the calls that AWS's handler of the type makes too; None for the emulation's own.
        physical_id: the id of the existing resource (update and delete).
        attributes: the attributes of the existing resource (update and delete).
        old_properties: the properties of the existing resource (update).
        initiated: called by the type as soon as the physical id is known, so that a later failure can be cleaned up.
        cancelled: set when the operation is cancelled; a long wait must watch this event.
    """

    type: str
    logical_id: str
    stack_name: str
    stack_arn: str
    region: str
    properties: Mapping[str, Any]
    tags: Mapping[str, str]
    clients: Clients
    signer: AccessKey | None = None
    physical_id: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    old_properties: Mapping[str, Any] = field(default_factory=dict)
    initiated: Initiated = _nobody
    cancelled: threading.Event = field(default_factory=threading.Event)

    def client(self, service: str) -> Any:  # the type depends on the service
        """Return a boto3 client for the stack's region; the permissions of the stack's role or caller limit it."""
        return (
            self.own_client(service)
            if self.signer is None
            else self.clients.signed_by(self.signer, service, self.region)
        )

    def own_client(self, service: str) -> Any:  # as `client`
        """Return a client for calls that AWS's own resource handler does not make, so no permissions limit it."""
        return self.clients.get(service, self.region)

    def name(self, property_name: str, *, limit: int, lower: bool = False) -> str:
        """Return the name that the template states, or a generated name of at most `limit` characters."""
        stated = self.properties.get(property_name)
        if stated is not None:
            return str(stated)
        return physical_name(self.stack_name, self.logical_id, limit=limit, lower=lower)

    def all_tags(self) -> dict[str, str]:
        """Return the stack's tags and the resource's own tags; the resource's value wins if both have a key."""
        own = self.properties.get("Tags") or []
        if isinstance(own, dict):
            return {**self.tags, **{str(key): str(value) for key, value in own.items()}}
        return {**self.tags, **{tag["Key"]: str(tag["Value"]) for tag in own}}

    def tag_list(self) -> list[dict[str, str]]:
        """Return `all_tags` as a list of `Key` and `Value`, the form that most APIs take."""
        return [{"Key": key, "Value": value} for key, value in self.all_tags().items()]

    def changed(self, *names: str) -> bool:
        """Return True if an update changes one of the named properties."""
        return any(self.properties.get(name) != self.old_properties.get(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The resource after a create or update: the value of `Ref`, and the values of `Fn::GetAtt`."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class ResourceType:
    """One resource type. Subclasses list the emulated properties and call the API; AWS's schema gives the rules.

    Class attributes: type: the name in templates. known: properties that the emulation honours; others are rejected
        before anything is created. required: properties that this emulation requires in addition to those that the
        schema requires. name_property: the property that fixes the physical name, if there is one. volatile: attributes
        that an update in place may change; `None` means all of them. fixed: properties that can never change, each with
        the reason: a change fails the update and makes no new resource either. rolls_back_by_update: whether a rollback
        updates the resource even if the failed update had replaced it. not_in_schema: the paths of nested properties
        that exist in the service's API but not in CloudFormation's schema.
    """

    type: ClassVar[str]
    known: ClassVar[frozenset[str]] = frozenset()
    required: ClassVar[frozenset[str]] = frozenset()
    name_property: ClassVar[str | None] = None
    volatile: ClassVar[frozenset[str] | None] = frozenset()
    fixed: ClassVar[Mapping[str, str]] = {}
    rolls_back_by_update: ClassVar[bool] = False
    not_in_schema: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @property
    def schema(self) -> Schema:
        """AWS's schema of the resource type: its create-only and read-only properties, attributes and tags."""
        return schema_of(self.type)

    def create(self, request: Request) -> Outcome:
        """Make the resource."""
        raise NotImplementedError

    def update(self, request: Request) -> Outcome:
        """Change the resource from `old_properties` to `properties`; a new physical id means it was replaced."""
        raise NotImplementedError

    def delete(self, request: Request) -> None:
        """Remove the resource; a missing resource is not a failure."""
        raise NotImplementedError

    def unknown_properties(self, names: Iterable[str]) -> list[str]:
        """Return those of the property names in `names` that this resource type does not know."""
        return sorted(set(names) - self.known)

    def extraneous(self, properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield place and name of each nested property in `properties` that CloudFormation's schema does not have."""
        for *path, name in self.not_in_schema:
            yield from ((place, name) for place, found in _values_at(properties, path, "#") if name in found)

    def replaces(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return True if the change of the properties from `before` to `after` needs a new resource."""
        return self.schema.replaces((), before, after)

    def check_fixed(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Reject a change of a property that can never change in an existing resource.

        Raises:
            ResourceFailure: such a property changes.
        """
        for name, reason in self.fixed.items():
            if before.get(name) != after.get(name):
                raise ResourceFailure(reason)

    def may_change(self, attribute: str) -> bool:
        """Return True if an update in place can change the value of the named attribute."""
        return self.volatile is None or attribute in self.volatile


def _values_at(value: Any, path: Sequence[str], place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping at a path in `value`, with its location; follow the path into every item of a list."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _values_at(item, path, f"{place}/{number}")
    elif isinstance(value, dict):
        if not path:
            yield place, value
        elif path[0] in value:
            yield from _values_at(value[path[0]], path[1:], f"{place}/{path[0]}")


def failure_text(error: Exception, service_hint: str = "") -> str:
    """Return the reason of a failed call in the words that CloudFormation's events use.

    Args:
        error: what the call raised.
        service_hint: the resource type, which the text names in the place of the service.
    """
    if isinstance(error, ClientError):
        detail, meta = error.response["Error"], error.response.get("ResponseMetadata", {})
        text = (
            f"{detail.get('Message', '')} (Service: {service_hint}, Status Code: {meta.get('HTTPStatusCode')}, "
            f"Request ID: {meta.get('RequestId', '')})"
        )
        code = detail.get("Code", "GeneralServiceException")
        if _says_exists(detail):
            code = "AlreadyExists"
        elif str(code).startswith("AccessDenied"):
            code = "AccessDenied"
        return f'Resource handler returned message: "{text}" (RequestToken: {uuid.uuid4()}, HandlerErrorCode: {code})'
    if isinstance(error, (ResourceFailure, BotoCoreError)):
        return str(error)
    return f"Internal Failure: {type(error).__name__}: {error}"


def _says_exists(detail: Mapping[str, Any]) -> bool:
    code, message = str(detail.get("Code", "")), str(detail.get("Message", ""))
    return "AlreadyExist" in code or "AlreadyOwned" in code or "already exist" in message.lower()


def is_missing(error: ClientError) -> bool:
    """Return True if an error means that the resource does not exist."""
    code = str(error.response["Error"].get("Code", ""))
    message = str(error.response["Error"].get("Message", ""))
    return (
        any(part in code for part in ("NotFound", "NoSuch", "NotExist", "404"))
        or "could not find" in message.lower()
        or "does not exist" in message.lower()
    )


def call(client: Any, method: str, **arguments: Any) -> Any:  # the types depend on service and method
    """Call an API; convert arguments to the API's types, since templates may have `"1"` or `"true"` for 1 or true."""
    operation = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method])
    present = {name: value for name, value in arguments.items() if value is not None}
    return getattr(client, method)(**coerced(present, operation.input_shape))


def call_if_there(client: Any, method: str, **arguments: Any) -> bool:
    """Do `call` on a resource that may be missing; return True if the resource existed, False if it was missing."""
    try:
        call(client, method, **arguments)
    except ClientError as error:
        if is_missing(error):
            return False
        raise
    return True


def retag(request: Request, service: str, methods: tuple[str, str, str], **whose: str) -> None:
    """Set the tags of a resource to its tags in the template and the stack's tags; remove all others.

    Args:
        request: an update.
        service: the resource's service, by boto3's name.
        methods: the client's methods that list tags, remove tags by key, and add tags.
        whose: the argument that names the resource in calls of all three methods.
    """
    client, wanted = request.client(service), request.all_tags()
    lists, takes_off, puts_on = methods
    current = [tag["Key"] for tag in call(client, lists, **whose).get("Tags", [])]
    if gone := [key for key in current if key not in wanted]:
        call(client, takes_off, **whose, TagKeys=gone)
    if wanted:
        call(client, puts_on, **whose, Tags=request.tag_list())


def coerced(value: Any, shape: Shape | None) -> Any:
    """Return `value` with each scalar converted to the type that the API's model (`shape`) gives."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return {key: coerced(item, shape.members.get(key)) for key, item in value.items()}
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [coerced(item, shape.member) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {key: coerced(item, shape.value) for key, item in value.items()}
    return value if shape is None else _scalar(value, shape.type_name)


def _scalar(value: Any, type_name: str) -> Any:
    if isinstance(value, str):
        if type_name == "boolean" and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        if type_name in {"integer", "long"} and value.lstrip("-").isdigit():
            return int(value)
        if type_name in {"double", "float"}:
            with contextlib.suppress(ValueError):
                return float(value)
    if type_name == "string" and isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return value


def policy_text(document: Any) -> str:  # a policy may be JSON or text
    """Return a policy document as JSON text, which APIs require."""
    return document if isinstance(document, str) else json.dumps(document)
