"""The IAM actions that CloudFormation's resource handlers call, from the schema of each resource type.

A schema lists the actions for all properties of a type together. CALLED_FOR names actions that a handler calls only if
a certain property is set; all other actions of the schema count as called. So the emulation may require more
permissions than AWS does, but never fewer.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from local_aws.cloudformation.templates.schemas import document_of, knows, value_at

if TYPE_CHECKING:
    from collections.abc import Mapping

Verb = Literal["create", "update", "delete"]

CALLED_FOR: Final[Mapping[str, Mapping[str, str]]] = {
    "AWS::ApplicationAutoScaling::ScalableTarget": {
        "lambda:*": "of the namespace lambda",
        "iam:PassRole": "RoleARN",
        "application-autoscaling:PutScheduledAction": "ScheduledActions",
        "application-autoscaling:DeleteScheduledAction": "ScheduledActions",
    },
    "AWS::Budgets::Budget": {"billing:GetBillingViewData": "Budget.BillingViewArn"},
    "AWS::EC2::VPCEndpoint": {"vpc-lattice:*": "ServiceNetworkArn", "vpce:AllowMultiRegion": "ServiceRegion"},
    "AWS::IAM::Role": {
        "iam:AttachRolePolicy": "ManagedPolicyArns",
        "iam:DetachRolePolicy": "ManagedPolicyArns",
        "iam:PutRolePermissionsBoundary": "PermissionsBoundary",
        "iam:DeleteRolePermissionsBoundary": "PermissionsBoundary",
    },
    "AWS::IAM::Policy": {"iam:*UserPolicy": "Users", "iam:*GroupPolicy": "Groups"},
    "AWS::Lambda::Function": {
        "lambda:PutFunctionConcurrency": "ReservedConcurrentExecutions",
        "lambda:DeleteFunctionConcurrency": "ReservedConcurrentExecutions",
        "lambda:PutRuntimeManagementConfig": "RuntimeManagementConfig",
        "lambda:GetCodeSigningConfig": "CodeSigningConfigArn",
        "lambda:PutFunctionCodeSigningConfig": "CodeSigningConfigArn",
        "lambda:DeleteFunctionCodeSigningConfig": "CodeSigningConfigArn",
        "lambda:GetLayerVersion": "Layers",
        "lambda:PutFunctionRecursionConfig": "RecursiveLoop",
        "lambda:PutFunctionScalingConfig": "FunctionScalingConfig",
        "lambda:PassCapacityProvider": "CapacityProviderConfig",
        "lambda:PublishVersion": "PublishToLatestPublished",
        "ec2:*": "VpcConfig",
        "elasticfilesystem:*": "FileSystemConfigs",
        "s3files:*": "FileSystemConfigs",
        "kms:*": "KmsKeyArn",
        "s3:GetObject": "Code.S3Bucket",
        "s3:GetObjectVersion": "Code.S3ObjectVersion",
    },
    "AWS::Logs::LogGroup": {
        "logs:PutDataProtectionPolicy": "DataProtectionPolicy",
        "logs:DeleteDataProtectionPolicy": "DataProtectionPolicy",
        "logs:CreateLogDelivery": "DataProtectionPolicy",
        "s3:REST.PUT.OBJECT": "DataProtectionPolicy",
        "firehose:TagDeliveryStream": "DataProtectionPolicy",
        "logs:PutIndexPolicy": "FieldIndexPolicies",
        "logs:DeleteIndexPolicy": "FieldIndexPolicies",
        "logs:PutResourcePolicy": "ResourcePolicyDocument",
        "logs:DeleteResourcePolicy": "ResourcePolicyDocument",
        "logs:PutBearerTokenAuthentication": "BearerTokenAuthenticationEnabled",
        "logs:PutLogGroupDeletionProtection": "DeletionProtectionEnabled",
        "logs:AssociateKmsKey": "KmsKeyId",
        "logs:DisassociateKmsKey": "KmsKeyId",
    },
    "AWS::S3::Bucket": {
        "s3tables:*": "MetadataTableConfiguration",
        "s3:*BucketMetadata*TableConfiguration": "MetadataTableConfiguration",
        "s3:PutBucketAbac": "AbacStatus",
        "s3:PutAnalyticsConfiguration": "AnalyticsConfigurations",
        "s3:DeleteBucketAnalyticsConfiguration": "AnalyticsConfigurations",
        "s3:PutBucketCORS": "CorsConfiguration",
        "s3:DeleteBucketCors": "CorsConfiguration",
        "s3:PutInventoryConfiguration": "InventoryConfigurations",
        "s3:PutLifecycleConfiguration": "LifecycleConfiguration",
        "s3:DeleteBucketLifecycle": "LifecycleConfiguration",
        "s3:PutMetricsConfiguration": "MetricsConfigurations",
        "s3:DeleteBucketMetricsConfiguration": "MetricsConfigurations",
        "s3:PutBucketNotification": "NotificationConfiguration",
        "s3:PutBucketReplication": "ReplicationConfiguration",
        "s3:PutReplicationConfiguration": "ReplicationConfiguration",
        "s3:DeleteBucketReplication": "ReplicationConfiguration",
        "iam:PassRole": "ReplicationConfiguration",
        "s3:PutBucketWebsite": "WebsiteConfiguration",
        "s3:DeleteBucketWebsite": "WebsiteConfiguration",
        "s3:PutAccelerateConfiguration": "AccelerateConfiguration",
        "s3:*ObjectLockConfiguration": "ObjectLockConfiguration",
        "s3:PutObjectAcl": "AccessControl",
        "s3:PutBucketAcl": "AccessControl",
        "s3:PutBucketLogging": "LoggingConfiguration",
        "s3:DeleteObject": "LoggingConfiguration",
        "s3:PutBucketVersioning": "VersioningConfiguration",
        "s3:PutIntelligentTieringConfiguration": "IntelligentTieringConfigurations",
        # Its action is PutEncryptionConfiguration (Service Authorization Reference); the schema names the operation.
        "s3:DeleteBucketEncryption": "a name that is no action",
    },
    "AWS::SNS::Topic": {
        "sns:Subscribe": "Subscription",
        "sns:Unsubscribe": "Subscription",
        "sns:PutDataProtectionPolicy": "DataProtectionPolicy",
        "iam:*": "DeliveryStatusLogging",
    },
    "AWS::SNS::Subscription": {"iam:*": "SubscriptionRoleArn"},
    "AWS::SageMaker::EndpointConfig": {"kms:*": "KmsKeyId", "iam:PassRole": "ExecutionRoleArn"},
    "AWS::SageMaker::Model": {"iam:PassRole": "ExecutionRoleArn"},
}
"""By resource type and pattern of actions: the property, or path of properties, that the handler calls them for."""


def handler_actions(resource_type: str, verb: Verb, properties: Mapping[str, Any]) -> list[str]:
    """Return the IAM actions that a handler needs for a resource with these properties, in the schema's order.

    CloudFormation reads a resource's attributes after a create or update, so the list then includes the read handler's
    actions. The list is empty for a type without a schema, such as a custom resource.
    """
    wanted = CALLED_FOR.get(resource_type, {})

    def is_called(action: str) -> bool:
        if resource_type == "AWS::S3::Bucket" and action.startswith("s3:Get"):
            return True
        reasons = [path for pattern, path in wanted.items() if fnmatchcase(action, pattern)]
        return all(value_at(properties, tuple(path.split("."))) is not None for path in reasons)

    verbs = (verb,) if verb == "delete" else (verb, "read")
    listed = dict.fromkeys(action for one in verbs for action in permissions(resource_type).get(one, ()))
    return [action for action in listed if is_called(action)]


@cache
def permissions(resource_type: str) -> dict[str, tuple[str, ...]]:
    """Return the permissions of a resource type by handler: create, read, update, delete, list, and `tagging`.

    A type without a schema has no entries.
    """
    if not knows(resource_type):
        return {}
    schema = document_of(resource_type)
    handlers: Mapping[str, Any] = schema.get("handlers", {})
    listed = {**handlers, "tagging": schema.get("tagging") or {}}
    return {one: tuple(handler.get("permissions", ())) for one, handler in listed.items()}
