"""AWS::KMS::Key and AWS::KMS::Alias, which the bootstrap stack makes when it is asked for a key of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from local_aws.cloudformation.resources.base import (
    Outcome,
    Request,
    ResourceType,
    call,
    call_if_there,
    policy_text,
)


class Key(ResourceType):
    """A key; its deletion is scheduled, as KMS does it."""

    type: ClassVar[str] = "AWS::KMS::Key"
    known: ClassVar[frozenset[str]] = frozenset(
        {"Description", "EnableKeyRotation", "KeyPolicy", "KeySpec", "KeyUsage", "PendingWindowInDays", "Tags"}
    )
    create_only: ClassVar[frozenset[str]] = frozenset({"KeySpec", "KeyUsage"})

    def create(self, request: Request) -> Outcome:
        """Make the key."""
        properties, client = request.properties, request.client("kms")
        policy = properties.get("KeyPolicy")
        answer = call(
            client,
            "create_key",
            Policy=None if policy is None else policy_text(policy),
            Tags=[{"TagKey": key, "TagValue": value} for key, value in request.all_tags().items()] or None,
            **{key: properties.get(key) for key in ("Description", "KeySpec", "KeyUsage")},
        )
        metadata = answer["KeyMetadata"]
        request.initiated(metadata["KeyId"])
        _set_rotation(client, metadata["KeyId"], properties)
        return Outcome(physical_id=metadata["KeyId"], attributes={"Arn": metadata["Arn"], "KeyId": metadata["KeyId"]})

    def update(self, request: Request) -> Outcome:
        """Change policy, text and rotation."""
        client, key_id = request.client("kms"), request.physical_id
        if request.changed("KeyPolicy") and request.properties.get("KeyPolicy") is not None:
            policy = policy_text(request.properties["KeyPolicy"])
            call(client, "put_key_policy", KeyId=key_id, PolicyName="default", Policy=policy)
        if request.changed("Description"):
            description = request.properties.get("Description", "")
            call(client, "update_key_description", KeyId=key_id, Description=description)
        _set_rotation(client, key_id, request.properties)
        arn = call(client, "describe_key", KeyId=key_id)["KeyMetadata"]["Arn"]
        return Outcome(physical_id=key_id, attributes={"Arn": arn, "KeyId": key_id})

    def delete(self, request: Request) -> None:
        """Schedule the deletion."""
        days = request.properties.get("PendingWindowInDays")
        call_if_there(
            request.client("kms"), "schedule_key_deletion", KeyId=request.physical_id, PendingWindowInDays=days
        )


class Alias(ResourceType):
    """A name for a key."""

    type: ClassVar[str] = "AWS::KMS::Alias"
    known: ClassVar[frozenset[str]] = frozenset({"AliasName", "TargetKeyId"})
    required: ClassVar[frozenset[str]] = known
    create_only: ClassVar[frozenset[str]] = frozenset({"AliasName"})
    name_property: ClassVar[str | None] = "AliasName"

    def create(self, request: Request) -> Outcome:
        """Make the alias."""
        name, key = request.properties["AliasName"], request.properties["TargetKeyId"]
        call(request.client("kms"), "create_alias", AliasName=name, TargetKeyId=key)
        return Outcome(physical_id=name)

    def update(self, request: Request) -> Outcome:
        """Point the alias at another key."""
        name, key = request.physical_id, request.properties["TargetKeyId"]
        call(request.client("kms"), "update_alias", AliasName=name, TargetKeyId=key)
        return Outcome(physical_id=name)

    def delete(self, request: Request) -> None:
        """Remove the alias."""
        call_if_there(request.client("kms"), "delete_alias", AliasName=request.physical_id)


def _set_rotation(client: Any, key_id: str, properties: Any) -> None:  # noqa: ANN401 - boto3 client and JSON
    if str(properties.get("EnableKeyRotation", "false")).lower() == "true":
        call(client, "enable_key_rotation", KeyId=key_id)
