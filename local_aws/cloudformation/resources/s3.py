"""Resource types of S3: AWS::S3::Bucket and AWS::S3::BucketPolicy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, call_if_there, policy_text
from local_aws.kit.account import PARTITION
from local_aws.kit.errors import not_emulated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_aws.cloudformation.templates.schemas import Schema


BUCKET_NAME_LIMIT: Final = 63


class Bucket(ResourceType):
    """AWS::S3::Bucket, with the settings that the CDK writes; a bucket that holds objects cannot be deleted."""

    type: ClassVar[str] = "AWS::S3::Bucket"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "AccessControl", "BucketEncryption", "BucketName", "LifecycleConfiguration", "OwnershipControls",
            "PublicAccessBlockConfiguration", "Tags", "VersioningConfiguration",
        }
    )  # fmt: skip
    name_property: ClassVar[str | None] = "BucketName"

    @property
    def schema(self) -> Schema:
        """AWS's schema without system tags: moto's S3 rejects `aws:` tags, as S3 rejects them from callers."""
        return replace(super().schema, system_tags=False)

    def create(self, request: Request) -> Outcome:
        """Make the bucket and apply its settings."""
        name = request.name("BucketName", limit=BUCKET_NAME_LIMIT, lower=True)
        client = request.client("s3")
        # In us-east-1 CreateBucket answers 200 for a bucket that the caller owns; CloudFormation fails in every region.
        if call_if_there(client, "head_bucket", Bucket=name):
            raise ResourceFailure(f"{name} already exists")
        location = {} if request.region == "us-east-1" else {"LocationConstraint": request.region}
        call(client, "create_bucket", Bucket=name, CreateBucketConfiguration=location or None)
        request.initiated(name)
        _apply(request, name, {key for key in _SETTINGS if key in request.properties})
        _tag(request, name)
        return _bucket_outcome(name, request.region)

    def update(self, request: Request) -> Outcome:
        """Apply the changed settings, and reset settings that the template no longer has."""
        _apply(request, request.physical_id, {key for key in _SETTINGS if request.changed(key)})
        _tag(request, request.physical_id)
        return _bucket_outcome(request.physical_id, request.region)

    def delete(self, request: Request) -> None:
        """Delete the bucket; S3 refuses this if the bucket contains objects."""
        call_if_there(request.client("s3"), "delete_bucket", Bucket=request.physical_id)


class BucketPolicy(ResourceType):
    """AWS::S3::BucketPolicy; `Ref` is the bucket's name."""

    type: ClassVar[str] = "AWS::S3::BucketPolicy"
    known: ClassVar[frozenset[str]] = frozenset({"Bucket", "PolicyDocument"})

    def create(self, request: Request) -> Outcome:
        """Put the policy onto the bucket."""
        bucket = str(request.properties["Bucket"])
        policy = policy_text(request.properties["PolicyDocument"])
        call(request.client("s3"), "put_bucket_policy", Bucket=bucket, Policy=policy)
        return Outcome(physical_id=bucket)

    def update(self, request: Request) -> Outcome:
        """Overwrite the policy."""
        return self.create(request)

    def delete(self, request: Request) -> None:
        """Remove the policy from the bucket."""
        call_if_there(request.client("s3"), "delete_bucket_policy", Bucket=request.physical_id)


def _bucket_outcome(name: str, region: str) -> Outcome:
    return Outcome(
        physical_id=name,
        attributes={
            "Arn": f"arn:{PARTITION}:s3:::{name}",
            "DomainName": f"{name}.s3.amazonaws.com",
            "DualStackDomainName": f"{name}.s3.dualstack.{region}.amazonaws.com",
            "RegionalDomainName": f"{name}.s3.{region}.amazonaws.com",
            "WebsiteURL": f"http://{name}.s3-website-{region}.amazonaws.com",
        },
    )


def _tag(request: Request, name: str) -> None:
    tags = request.tag_list()
    if tags:
        call(request.client("s3"), "put_bucket_tagging", Bucket=name, Tagging={"TagSet": tags})
    else:
        call_if_there(request.client("s3"), "delete_bucket_tagging", Bucket=name)


def _apply(request: Request, name: str, keys: set[str]) -> None:
    for key in sorted(keys):
        _SETTINGS[key](request.client("s3"), name, request.properties.get(key))


def _encryption(client: Any, name: str, value: Mapping[str, Any] | None) -> None:
    if value is None:
        call_if_there(client, "delete_bucket_encryption", Bucket=name)
        return
    rules = [
        {
            **({"BucketKeyEnabled": rule["BucketKeyEnabled"]} if "BucketKeyEnabled" in rule else {}),
            "ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"],
        }
        for rule in value["ServerSideEncryptionConfiguration"]
    ]
    call(client, "put_bucket_encryption", Bucket=name, ServerSideEncryptionConfiguration={"Rules": rules})


def _public_access(client: Any, name: str, value: Mapping[str, Any] | None) -> None:
    if value is None:
        call_if_there(client, "delete_public_access_block", Bucket=name)
        return
    call(client, "put_public_access_block", Bucket=name, PublicAccessBlockConfiguration=dict(value))


def _versioning(client: Any, name: str, value: Mapping[str, Any] | None) -> None:
    status = "Suspended" if value is None else value["Status"]
    call(client, "put_bucket_versioning", Bucket=name, VersioningConfiguration={"Status": status})


def _ownership(client: Any, name: str, value: Mapping[str, Any] | None) -> None:
    if value is None:
        call_if_there(client, "delete_bucket_ownership_controls", Bucket=name)
        return
    call(client, "put_bucket_ownership_controls", Bucket=name, OwnershipControls={"Rules": list(value["Rules"])})


def _access_control(client: Any, name: str, value: str | None) -> None:
    acl = "private" if value is None else _canned_acl(value)
    call(client, "put_bucket_acl", Bucket=name, ACL=acl)


def _canned_acl(value: str) -> str:
    """Convert a canned ACL to S3's spelling: `LogDeliveryWrite` to `log-delivery-write`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in value).lstrip("-")


def _lifecycle(client: Any, name: str, value: Mapping[str, Any] | None) -> None:
    if value is None:
        call_if_there(client, "delete_bucket_lifecycle", Bucket=name)
        return
    rules = [_lifecycle_rule(rule) for rule in value["Rules"]]
    call(client, "put_bucket_lifecycle_configuration", Bucket=name, LifecycleConfiguration={"Rules": rules})


# The parts of a lifecycle rule that have the same name in CloudFormation and in S3.
_RULE_PARTS: Final = ("Status", "AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration")


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    supported = {*_RULE_PARTS, "Id", "Prefix", "ExpirationInDays", "ExpiredObjectDeleteMarker"}
    unknown = sorted(set(rule) - supported)
    if unknown:
        raise ResourceFailure(
            not_emulated(f"{', '.join(unknown)} of LifecycleConfiguration", "S3", allowed=", ".join(sorted(supported)))
        )
    wanted: dict[str, Any] = {part: rule[part] for part in _RULE_PARTS if part in rule}
    wanted["Filter"] = {"Prefix": rule.get("Prefix", "")}
    if "Id" in rule:
        wanted["ID"] = rule["Id"]
    expiration = {
        api: rule[key]
        for key, api in {"ExpirationInDays": "Days", "ExpiredObjectDeleteMarker": "ExpiredObjectDeleteMarker"}.items()
        if key in rule
    }
    return {**wanted, "Expiration": expiration} if expiration else wanted


_SETTINGS: Final[dict[str, Callable[[Any, str, Any], None]]] = {
    "AccessControl": _access_control,
    "BucketEncryption": _encryption,
    "LifecycleConfiguration": _lifecycle,
    "OwnershipControls": _ownership,
    "PublicAccessBlockConfiguration": _public_access,
    "VersioningConfiguration": _versioning,
}
