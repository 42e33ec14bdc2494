"""AWS::SNS::Topic, AWS::SNS::TopicPolicy and AWS::SNS::Subscription."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.cloudformation.names import physical_name
from local_aws.cloudformation.resources.base import (
    Outcome,
    Request,
    ResourceType,
    call,
    call_if_there,
    policy_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_LIMIT: Final = 256
_TOPIC_ATTRIBUTES: Final = ("DisplayName", "KmsMasterKeyId", "SignatureVersion")
_SUBSCRIPTION_ATTRIBUTES: Final = ("FilterPolicy", "FilterPolicyScope", "RawMessageDelivery", "RedrivePolicy")


class Topic(ResourceType):
    """A topic; `Ref` is its ARN."""

    type: ClassVar[str] = "AWS::SNS::Topic"
    known: ClassVar[frozenset[str]] = frozenset({*_TOPIC_ATTRIBUTES, "Tags", "TopicName"})
    create_only: ClassVar[frozenset[str]] = frozenset({"TopicName"})
    name_property: ClassVar[str | None] = "TopicName"

    def create(self, request: Request) -> Outcome:
        """Make the topic."""
        name = request.name("TopicName", limit=NAME_LIMIT)
        stated = {key: request.properties[key] for key in _TOPIC_ATTRIBUTES if key in request.properties}
        answer = call(
            request.client("sns"),
            "create_topic",
            Name=name,
            Attributes={key: str(value) for key, value in stated.items()} or None,
            Tags=request.tag_list() or None,
        )
        return _topic(answer["TopicArn"])

    def update(self, request: Request) -> Outcome:
        """Change attributes and tags."""
        client, arn = request.client("sns"), request.physical_id
        for key in _TOPIC_ATTRIBUTES:
            if request.changed(key):
                value = str(request.properties.get(key, ""))
                call(client, "set_topic_attributes", TopicArn=arn, AttributeName=key, AttributeValue=value)
        if request.tag_list():
            call(client, "tag_resource", ResourceArn=arn, Tags=request.tag_list())
        return _topic(arn)

    def delete(self, request: Request) -> None:
        """Remove the topic with its subscriptions."""
        call_if_there(request.client("sns"), "delete_topic", TopicArn=request.physical_id)


class TopicPolicy(ResourceType):
    """The policy of some topics. Removed, each topic has the policy again that SNS gives to a new one."""

    type: ClassVar[str] = "AWS::SNS::TopicPolicy"
    known: ClassVar[frozenset[str]] = frozenset({"PolicyDocument", "Topics"})
    required: ClassVar[frozenset[str]] = known

    def create(self, request: Request) -> Outcome:
        """Put the policy on each topic."""
        self._put(request)
        name = physical_name(request.stack_name, request.logical_id, limit=NAME_LIMIT)
        return Outcome(physical_id=name, attributes={"Id": name})

    def update(self, request: Request) -> Outcome:
        """Put the changed policy on each topic, and take it from those that are no longer named."""
        self._put(request)
        _reset_policies(request, set(request.old_properties["Topics"]) - set(request.properties["Topics"]))
        return Outcome(physical_id=request.physical_id, attributes={"Id": request.physical_id})

    def delete(self, request: Request) -> None:
        """Take the policy from each topic that is still there."""
        _reset_policies(request, set(request.properties["Topics"]))

    @staticmethod
    def _put(request: Request) -> None:
        policy = policy_text(request.properties["PolicyDocument"])
        for arn in request.properties["Topics"]:
            _set_policy(request, arn, policy)


class Subscription(ResourceType):
    """A subscription; `Ref` is its ARN. An e-mail address has to confirm it first, which moto does not ask for."""

    type: ClassVar[str] = "AWS::SNS::Subscription"
    known: ClassVar[frozenset[str]] = frozenset({*_SUBSCRIPTION_ATTRIBUTES, "Endpoint", "Protocol", "TopicArn"})
    required: ClassVar[frozenset[str]] = frozenset({"Protocol", "TopicArn"})
    create_only: ClassVar[frozenset[str]] = frozenset({"Endpoint", "Protocol", "TopicArn"})

    def create(self, request: Request) -> Outcome:
        """Subscribe."""
        properties = request.properties
        answer = call(
            request.client("sns"),
            "subscribe",
            TopicArn=properties["TopicArn"],
            Protocol=properties["Protocol"],
            Endpoint=properties.get("Endpoint"),
            Attributes=_subscription_attributes(properties) or None,
            ReturnSubscriptionArn=True,
        )
        return Outcome(physical_id=answer["SubscriptionArn"], attributes={"Arn": answer["SubscriptionArn"]})

    def update(self, request: Request) -> Outcome:
        """Change filter, delivery and dead-letter queue."""
        client, arn = request.client("sns"), request.physical_id
        for key, value in _subscription_attributes(request.properties).items():
            call(client, "set_subscription_attributes", SubscriptionArn=arn, AttributeName=key, AttributeValue=value)
        return Outcome(physical_id=arn, attributes={"Arn": arn})

    def delete(self, request: Request) -> None:
        """Unsubscribe."""
        call_if_there(request.client("sns"), "unsubscribe", SubscriptionArn=request.physical_id)


def _topic(arn: str) -> Outcome:
    return Outcome(physical_id=arn, attributes={"TopicArn": arn, "TopicName": arn.rpartition(":")[2]})


def _reset_policies(request: Request, arns: set[str]) -> None:
    for arn in arns:
        account = arn.split(":")[4]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["SNS:Publish", "SNS:Subscribe", "SNS:GetTopicAttributes"],
            "Resource": arn,
            "Condition": {"StringEquals": {"AWS:SourceOwner": account}},
        }
        _set_policy(request, arn, json.dumps({"Version": "2008-10-17", "Statement": [statement]}))


def _set_policy(request: Request, arn: str, policy: str) -> None:
    call_if_there(
        request.client("sns"), "set_topic_attributes", TopicArn=arn, AttributeName="Policy", AttributeValue=policy
    )


def _subscription_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    stated = {key: properties[key] for key in _SUBSCRIPTION_ATTRIBUTES if key in properties}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in stated.items()}
