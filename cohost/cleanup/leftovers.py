"""What of our stacks is still there: by the stacks' own lists, and by the tags that CloudFormation puts on resources.

A stack's list names what it has, and after its deletion what it left. It forgets what an update replaced and could not
delete; SageMaker's own tags find that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cohost.cleanup.kinds import BUCKET, COMPONENT, CONFIG, ENDPOINT, KINDS, LOG_GROUP, MODEL, ORDER
from cohost.cleanup.stacks import resources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import boto3
    from mypy_boto3_sagemaker import SageMakerClient

    from cohost.cleanup.stacks import OurStack, StackResource

STACK_TAG: Final = "aws:cloudformation:stack-name"

_TAGGED: Final = (
    (ENDPOINT, "list_endpoints", "Endpoints", "Endpoint"),
    (CONFIG, "list_endpoint_configs", "EndpointConfigs", "EndpointConfig"),
    (MODEL, "list_models", "Models", "Model"),
)

_LOGGING: Final = {ENDPOINT: "Endpoints", COMPONENT: "InferenceComponents"}


@dataclass(frozen=True, kw_only=True, order=True)
class Leftover:
    """One thing that is there. `kept` is True for what its stack leaves on purpose when it goes."""

    type: str
    name: str
    stack: str
    kept: bool = False

    @property
    def bills(self) -> str | None:
        """What it costs while it is there; None for nothing."""
        return KINDS[self.type].bills


def find_leftovers(session: boto3.Session, stacks: Iterable[OurStack]) -> list[Leftover]:
    """Everything of these stacks that is there, in the order in which it can be removed, each once.

    Resources that go with another one, such as a role's policy, are not told apart from it.
    """
    stacks = list(stacks)
    found: dict[tuple[str, str], Leftover] = {}
    for leftover in (*_listed(session, stacks), *_tagged(session, {stack.name for stack in stacks})):
        found.setdefault((leftover.type, leftover.name), leftover)
    there = [one for one in found.values() if KINDS[one.type].exists(session, one.name)]
    return sorted(there, key=lambda one: (ORDER.index(one.type), one.name))


def stack_of(sagemaker: SageMakerClient, arn: str) -> str | None:
    """The stack that made something in SageMaker, by its tags; None for what no stack made."""
    tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
    return next((tag["Value"] for tag in tags if tag["Key"] == STACK_TAG), None)


def _listed(session: boto3.Session, stacks: Iterable[OurStack]) -> Iterator[Leftover]:
    for stack in stacks:
        for resource in resources_of(session, stack):
            if (noun := _LOGGING.get(resource.type)) is not None and not _made_anew(session, resource):
                # A container that is on its way out may write once more, when its group is gone already.
                yield _log_group(noun, resource.name, stack.name)
            if resource.type in KINDS and not resource.gone:
                kept = resource.type == BUCKET and resource.status != "DELETE_FAILED" and stack.gone
                yield Leftover(type=resource.type, name=resource.name, stack=stack.name, kept=kept)


def _made_anew(session: boto3.Session, resource: StackResource) -> bool:
    """Whether something of that name is there although the stack's own is deleted: then its log is somebody else's."""
    return resource.gone and KINDS[resource.type].exists(session, resource.name)


def _tagged(session: boto3.Session, names: set[str]) -> Iterator[Leftover]:
    sagemaker = session.client("sagemaker")
    for kind, operation, field, noun in _TAGGED:
        for page in sagemaker.get_paginator(operation).paginate():  # type: ignore[call-overload]
            for one in page[field]:
                stack = stack_of(sagemaker, one[f"{noun}Arn"])
                if stack is None or stack not in names:
                    continue
                if kind == ENDPOINT:
                    yield from _components(session, one["EndpointName"], stack)
                    yield _log_group(_LOGGING[ENDPOINT], one["EndpointName"], stack)
                yield Leftover(type=kind, name=one[f"{noun}Name"], stack=stack)


def _components(session: boto3.Session, endpoint: str, stack: str) -> Iterator[Leftover]:
    """The components of an endpoint: they carry no tag of CloudFormation's, and go before it."""
    pages = session.client("sagemaker").get_paginator("list_inference_components").paginate(EndpointNameEquals=endpoint)
    for page in pages:
        for one in page["InferenceComponents"]:
            yield Leftover(type=COMPONENT, name=one["InferenceComponentName"], stack=stack)
            yield _log_group(_LOGGING[COMPONENT], one["InferenceComponentName"], stack)


def _log_group(noun: str, name: str, stack: str) -> Leftover:
    """The group that SageMaker makes by itself where no stack does, and never removes."""
    return Leftover(type=LOG_GROUP, name=f"/aws/sagemaker/{noun}/{name}", stack=stack)
