"""Resource types of IAM, KMS and Systems Manager: roles, policies, keys, aliases and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.cloudformation.resources.base import (
    Outcome,
    Request,
    ResourceType,
    call,
    call_if_there,
    physical_name,
    policy_text,
    retag,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLE_NAME_LIMIT: Final = 64
POLICY_NAME_LIMIT: Final = 128
TAGGING: Final = "list_role_tags", "untag_role", "tag_role"


class Role(ResourceType):
    """AWS::IAM::Role, a role with its inline and attached policies."""

    type: ClassVar[str] = "AWS::IAM::Role"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "AssumeRolePolicyDocument", "Description", "ManagedPolicyArns", "MaxSessionDuration", "Path",
            "PermissionsBoundary", "Policies", "RoleName", "Tags",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "RoleName"

    def create(self, request: Request) -> Outcome:
        """Create the role, then add its inline and attached policies."""
        properties = request.properties
        client = request.client("iam")
        name = request.name("RoleName", limit=ROLE_NAME_LIMIT)
        answer = call(
            client,
            "create_role",
            RoleName=name,
            AssumeRolePolicyDocument=policy_text(properties["AssumeRolePolicyDocument"]),
            Path=properties.get("Path"),
            Description=properties.get("Description"),
            MaxSessionDuration=properties.get("MaxSessionDuration"),
            PermissionsBoundary=properties.get("PermissionsBoundary"),
            Tags=request.tag_list() or None,
        )
        request.initiated(name)
        _set_attached(client, "PolicyArn", wanted=properties.get("ManagedPolicyArns", []), current=[], RoleName=name)
        _set_inline(client, name, properties.get("Policies", []), [])
        return Outcome(physical_id=name, attributes=_role_attributes(answer["Role"]))

    def update(self, request: Request) -> Outcome:
        """Change the role's properties except name and path, whose change creates a new role."""
        properties, old, name = request.properties, request.old_properties, request.physical_id
        client = request.client("iam")
        trust = policy_text(properties["AssumeRolePolicyDocument"])
        call(client, "update_assume_role_policy", RoleName=name, PolicyDocument=trust)
        if request.changed("Description", "MaxSessionDuration"):
            call(
                client,
                "update_role",
                RoleName=name,
                Description=properties.get("Description", ""),
                MaxSessionDuration=properties.get("MaxSessionDuration"),
            )
        if request.changed("PermissionsBoundary"):
            _set_boundary(client, name, properties.get("PermissionsBoundary"))
        wanted, current = (one.get("ManagedPolicyArns", []) for one in (properties, old))
        _set_attached(client, "PolicyArn", wanted=wanted, current=current, RoleName=name)
        _set_inline(client, name, properties.get("Policies", []), old.get("Policies", []))
        retag(request, "iam", TAGGING, RoleName=name)
        return Outcome(physical_id=name, attributes=_role_attributes(call(client, "get_role", RoleName=name)["Role"]))

    def delete(self, request: Request) -> None:
        """Detach or delete the role's policies, then delete the role."""
        client, name = request.client("iam"), request.physical_id
        if not call_if_there(client, "get_role", RoleName=name):
            return
        for inline in call(client, "list_role_policies", RoleName=name)["PolicyNames"]:
            call(client, "delete_role_policy", RoleName=name, PolicyName=inline)
        for attached in call(client, "list_attached_role_policies", RoleName=name)["AttachedPolicies"]:
            call(client, "detach_role_policy", RoleName=name, PolicyArn=attached["PolicyArn"])
        call_if_there(client, "delete_role", RoleName=name)


class Policy(ResourceType):
    """AWS::IAM::Policy, an inline policy of one or more roles; its properties Users and Groups are not emulated."""

    type: ClassVar[str] = "AWS::IAM::Policy"
    known: ClassVar[frozenset[str]] = frozenset({"PolicyDocument", "PolicyName", "Roles"})
    required: ClassVar[frozenset[str]] = frozenset({"Roles"})

    def create(self, request: Request) -> Outcome:
        """Write the policy into each role."""
        self._write(request, list(request.properties["Roles"]))
        # Several stacks may use one policy name for different roles, so the name does not identify a resource.
        return Outcome(physical_id=physical_name(request.stack_name, request.logical_id, limit=POLICY_NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Write the policy into its present roles; delete it from former roles, and delete it under a former name."""
        self._write(request, list(request.properties["Roles"]))
        renamed = request.changed("PolicyName")
        for role in set(request.old_properties["Roles"]) - (set() if renamed else set(request.properties["Roles"])):
            self._remove(request, role, request.old_properties["PolicyName"])
        return Outcome(physical_id=request.physical_id)

    def delete(self, request: Request) -> None:
        """Delete the policy from its roles."""
        for role in request.properties["Roles"]:
            self._remove(request, role, request.properties["PolicyName"])

    @staticmethod
    def _write(request: Request, roles: list[str]) -> None:
        document = policy_text(request.properties["PolicyDocument"])
        for role in roles:
            name = request.properties["PolicyName"]
            call(request.client("iam"), "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=document)

    @staticmethod
    def _remove(request: Request, role: str, name: str) -> None:
        call_if_there(request.client("iam"), "delete_role_policy", RoleName=role, PolicyName=name)


class ManagedPolicy(ResourceType):
    """AWS::IAM::ManagedPolicy; `Ref` is the policy's ARN."""

    type: ClassVar[str] = "AWS::IAM::ManagedPolicy"
    known: ClassVar[frozenset[str]] = frozenset({"Description", "ManagedPolicyName", "Path", "PolicyDocument", "Roles"})
    name_property: ClassVar[str | None] = "ManagedPolicyName"

    def create(self, request: Request) -> Outcome:
        """Make the policy and attach it to its roles."""
        client, properties = request.client("iam"), request.properties
        answer = call(
            client,
            "create_policy",
            PolicyName=request.name("ManagedPolicyName", limit=POLICY_NAME_LIMIT),
            PolicyDocument=policy_text(properties["PolicyDocument"]),
            Path=properties.get("Path"),
            Description=properties.get("Description"),
        )
        arn = answer["Policy"]["Arn"]
        request.initiated(arn)
        _set_attached(client, "RoleName", wanted=properties.get("Roles", []), current=[], PolicyArn=arn)
        return Outcome(physical_id=arn, attributes={"PolicyArn": arn})

    def update(self, request: Request) -> Outcome:
        """Make the new document the default version and delete the other versions, since IAM keeps at most five."""
        client, arn = request.client("iam"), request.physical_id
        if request.changed("PolicyDocument"):
            document = policy_text(request.properties["PolicyDocument"])
            call(client, "create_policy_version", PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
            _delete_old_versions(client, arn)
        wanted, current = (one.get("Roles", []) for one in (request.properties, request.old_properties))
        _set_attached(client, "RoleName", wanted=wanted, current=current, PolicyArn=arn)
        return Outcome(physical_id=arn, attributes={"PolicyArn": arn})

    def delete(self, request: Request) -> None:
        """Detach the policy, delete its versions, then the policy."""
        client, arn = request.client("iam"), request.physical_id
        if not call_if_there(client, "get_policy", PolicyArn=arn):
            return
        _set_attached(client, "RoleName", wanted=[], current=request.properties.get("Roles", []), PolicyArn=arn)
        _delete_old_versions(client, arn)
        call_if_there(client, "delete_policy", PolicyArn=arn)


def _role_attributes(role: dict[str, Any]) -> dict[str, str]:
    return {"Arn": role["Arn"], "RoleId": role["RoleId"]}


def _set_attached(client: Any, member: str, *, wanted: list[str], current: list[str], **fixed: str) -> None:
    """Attach and detach policies of one role, or roles of one policy; `member` is the member that varies."""
    for one in wanted:
        if one not in current:
            call(client, "attach_role_policy", **{member: one}, **fixed)
    for one in current:
        if one not in wanted:
            call_if_there(client, "detach_role_policy", **{member: one}, **fixed)


def _set_inline(client: Any, name: str, wanted: list[Any], current: list[Any]) -> None:
    for policy in wanted:
        document = policy_text(policy["PolicyDocument"])
        call(client, "put_role_policy", RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)
    kept = {policy["PolicyName"] for policy in wanted}
    for policy in current:
        if policy["PolicyName"] not in kept:
            call_if_there(client, "delete_role_policy", RoleName=name, PolicyName=policy["PolicyName"])


def _set_boundary(client: Any, name: str, arn: str | None) -> None:
    if arn is None:
        call_if_there(client, "delete_role_permissions_boundary", RoleName=name)
    else:
        call(client, "put_role_permissions_boundary", RoleName=name, PermissionsBoundary=arn)


def _delete_old_versions(client: Any, arn: str) -> None:
    for version in call(client, "list_policy_versions", PolicyArn=arn)["Versions"]:
        if not version["IsDefaultVersion"]:
            call(client, "delete_policy_version", PolicyArn=arn, VersionId=version["VersionId"])


class Key(ResourceType):
    """AWS::KMS::Key; a delete only schedules the key's deletion, as in KMS."""

    type: ClassVar[str] = "AWS::KMS::Key"
    known: ClassVar[frozenset[str]] = frozenset(
        {"Description", "EnableKeyRotation", "KeyPolicy", "KeySpec", "KeyUsage", "PendingWindowInDays", "Tags"}
    )
    # AWS fails such an update instead of replacing the key (template reference of AWS::KMS::Key).
    fixed: ClassVar[Mapping[str, str]] = {
        name: f"You cannot change the {name} property of an AWS::KMS::Key; add another key."
        for name in ("KeySpec", "KeyUsage")
    }

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
        """Change policy, description and rotation of the key."""
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
        """Schedule the deletion of the key."""
        days = request.properties.get("PendingWindowInDays")
        call_if_there(
            request.client("kms"), "schedule_key_deletion", KeyId=request.physical_id, PendingWindowInDays=days
        )


class Alias(ResourceType):
    """AWS::KMS::Alias, a name for a key."""

    type: ClassVar[str] = "AWS::KMS::Alias"
    known: ClassVar[frozenset[str]] = frozenset({"AliasName", "TargetKeyId"})
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


def _set_rotation(client: Any, key_id: str, properties: Any) -> None:  # a boto3 client and JSON have no static type
    if str(properties.get("EnableKeyRotation", "false")).lower() == "true":
        call(client, "enable_key_rotation", KeyId=key_id)


PARAMETER_NAME_LIMIT: Final = 1011


class Parameter(ResourceType):
    """AWS::SSM::Parameter; `Fn::GetAtt` gives its type and value."""

    type: ClassVar[str] = "AWS::SSM::Parameter"
    known: ClassVar[frozenset[str]] = frozenset(
        {"AllowedPattern", "DataType", "Description", "Name", "Tags", "Tier", "Type", "Value"}
    )
    name_property: ClassVar[str | None] = "Name"
    volatile: ClassVar[frozenset[str] | None] = frozenset({"Type", "Value"})

    def create(self, request: Request) -> Outcome:
        """Create the parameter; fail if it already exists."""
        name = request.name("Name", limit=PARAMETER_NAME_LIMIT)
        return self._put(request, name, overwrite=False)

    def update(self, request: Request) -> Outcome:
        """Overwrite the parameter."""
        return self._put(request, request.physical_id, overwrite=True)

    def delete(self, request: Request) -> None:
        """Remove the parameter."""
        call_if_there(request.client("ssm"), "delete_parameter", Name=request.physical_id)

    @staticmethod
    def _put(request: Request, name: str, *, overwrite: bool) -> Outcome:
        properties, client = request.properties, request.client("ssm")
        call(
            client,
            "put_parameter",
            Name=name,
            Type=properties["Type"],
            Value=properties["Value"],
            Overwrite=overwrite,
            **{key: properties.get(key) for key in ("AllowedPattern", "DataType", "Description", "Tier")},
        )
        tags = request.tag_list()
        if tags:
            call(client, "add_tags_to_resource", ResourceType="Parameter", ResourceId=name, Tags=tags)
        return Outcome(physical_id=name, attributes={"Type": properties["Type"], "Value": properties["Value"]})
