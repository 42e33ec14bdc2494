"""The actions that CloudFormation needs for each resource type of this project's templates.

The actions are the permissions of the handlers in CloudFormation's resource schemas (create, read, update, delete, and
those of tags). The action for a custom resource is from AWS's error text for a role without lambda:InvokeFunction
(aws-solutions/centralized-logging-with-opensearch#216). An action that the handler calls only for a certain property is
granted only to a template with this property. The tests in tests/unit/deploy/rights compare the table with the schemas.

Source of the resources and conditions: Service Authorization Reference. In the ARNs, `{name}` stands for the resource's
name; the other placeholders stand for partition, region, account and bootstrap qualifier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Condition = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Actions of one service on the same resources.

    Args:
        actions: the actions with the service's prefix, separated by blanks.
        on: the ARNs; with `of`, these are formatted once for each name of the resource that `of` refers to.
        of: the property that refers to another resource, or a path of properties with dots; None for the resource
            itself.
        when: the property, or path, without which the handler does not call the actions; None for always.
        condition: the statement's condition.
    """

    actions: str
    on: tuple[str, ...] = ("*",)
    of: str | None = None
    when: str | None = None
    condition: Condition = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ResourceRights:
    """The rights for one resource type.

    Args:
        grants: the rights of CloudFormation's role.
        name: the property that states the resource's name, if the template states it.
        cleanup: the actions of `cohost cleanup` on a resource that a stack left; `cohost.deploy.cleanup` calls them.
        lower: whether CloudFormation generates names in lower case.
        plain_id: whether CloudFormation may generate a name from the logical id alone, without the stack's name.
    """

    grants: tuple[Grant, ...]
    name: str | None = None
    cleanup: tuple[Grant, ...] = ()
    lower: bool = False
    plain_id: bool = False


_BUCKET: Final = ("arn:{partition}:s3:::{name}",)
_OBJECTS: Final = ("arn:{partition}:s3:::{name}/*",)
_ROLE: Final = ("arn:{partition}:iam::{account}:role/{name}",)
_FUNCTION: Final = ("arn:{partition}:lambda:{region}:{account}:function:{name}",)
_LOGS: Final = tuple(f"arn:{{partition}}:logs:{{region}}:{{account}}:log-group:{{name}}{end}" for end in ("", ":*"))
_TOPIC: Final = ("arn:{partition}:sns:{region}:{account}:{name}",)
_ALARM: Final = ("arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}",)
_DASHBOARD: Final = ("arn:{partition}:cloudwatch::{account}:dashboard/{name}",)
_BUDGET: Final = ("arn:{partition}:budgets::{account}:budget/{name}",)
_GROUP: Final = ("arn:{partition}:scheduler:{region}:{account}:schedule-group/{name}",)
_SCHEDULES: Final = ("arn:{partition}:scheduler:{region}:{account}:schedule/{name}/*",)
_SCALABLE: Final = ("arn:{partition}:application-autoscaling:{region}:{account}:scalable-target/*",)
_EC2: Final = "arn:{partition}:ec2:{region}:{account}:"
_OF_SAGEMAKER: Final[Condition] = {"StringEquals": {"application-autoscaling:service-namespace": "sagemaker"}}
_KEY: Final = ("{name}",)
_ASSETS: Final = ("arn:{partition}:s3:::cdk-{qualifier}-assets-{account}-{region}/*",)
_LINKED_SERVICE: Final = "sagemaker.application-autoscaling.amazonaws.com"
_LINKED_ROLE: Final = (
    f"arn:{{partition}}:iam::{{account}}:role/aws-service-role/{_LINKED_SERVICE}/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)


def _sagemaker(kind: str) -> tuple[str, ...]:
    return (f"arn:{{partition}}:sagemaker:{{region}}:{{account}}:{kind}/{{name}}",)


def _pass(prop: str, service: str) -> Grant:
    passed: Condition = {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}}
    return Grant(actions="iam:PassRole", on=_ROLE, of=prop, when=prop, condition=passed)


_ENDPOINT: Final = _sagemaker("endpoint")
_CONFIG: Final = _sagemaker("endpoint-config")
_MODEL: Final = _sagemaker("model")
_COMPONENT: Final = _sagemaker("inference-component")
_TAGS: Final = "sagemaker:AddTags sagemaker:DeleteTags sagemaker:ListTags"

_SAGEMAKER_TYPES: Final[Mapping[str, ResourceRights]] = {
    "AWS::SageMaker::Model": ResourceRights(
        name="ModelName",
        plain_id=True,
        grants=(
            Grant(actions=f"sagemaker:CreateModel sagemaker:DescribeModel sagemaker:DeleteModel {_TAGS}", on=_MODEL),
            _pass("ExecutionRoleArn", "sagemaker"),
        ),
        cleanup=(Grant(actions="sagemaker:DescribeModel sagemaker:DeleteModel sagemaker:ListTags", on=_MODEL),),
    ),
    "AWS::SageMaker::EndpointConfig": ResourceRights(
        name="EndpointConfigName",
        plain_id=True,
        grants=(
            Grant(
                actions="sagemaker:CreateEndpointConfig sagemaker:DescribeEndpointConfig "
                f"sagemaker:DeleteEndpointConfig {_TAGS}",
                on=_CONFIG,
            ),
            # API reference, CreateEndpoint: the caller needs both actions on the endpoint and on its configuration.
            Grant(actions="sagemaker:CreateEndpoint sagemaker:UpdateEndpoint", on=_CONFIG),
            # CreateEndpoint of a configuration with a key needs kms:CreateGrant (developer guide, "API permissions").
            Grant(actions="kms:DescribeKey kms:CreateGrant", on=_KEY, of="KmsKeyId", when="KmsKeyId"),
            _pass("ExecutionRoleArn", "sagemaker"),
        ),
        cleanup=(Grant(actions="sagemaker:DescribeEndpointConfig sagemaker:DeleteEndpointConfig", on=_CONFIG),),
    ),
    "AWS::SageMaker::Endpoint": ResourceRights(
        name="EndpointName",
        plain_id=True,
        grants=(
            Grant(
                actions="sagemaker:CreateEndpoint sagemaker:UpdateEndpoint sagemaker:DescribeEndpoint "
                f"sagemaker:DeleteEndpoint {_TAGS}",
                on=_ENDPOINT,
            ),
            # A rollback that puts an instance's weights back is an UpdateEndpoint too; no further action is documented.
        ),
        cleanup=(
            Grant(actions="sagemaker:DescribeEndpoint sagemaker:DeleteEndpoint sagemaker:ListTags", on=_ENDPOINT),
        ),
    ),
    "AWS::SageMaker::InferenceComponent": ResourceRights(
        name="InferenceComponentName",
        plain_id=True,
        grants=(
            Grant(
                actions="sagemaker:CreateInferenceComponent sagemaker:UpdateInferenceComponent "
                "sagemaker:UpdateInferenceComponentRuntimeConfig sagemaker:DescribeInferenceComponent "
                f"sagemaker:DeleteInferenceComponent {_TAGS}",
                on=_COMPONENT,
            ),
            # No source says if the endpoint of a component is evaluated too, so the right is granted on both.
            Grant(actions="sagemaker:CreateInferenceComponent", on=_ENDPOINT, of="EndpointName"),
        ),
        cleanup=(
            Grant(
                actions="sagemaker:DescribeInferenceComponent sagemaker:DeleteInferenceComponent",
                on=_COMPONENT,
            ),
        ),
    ),
}

_STORAGE_TYPES: Final[Mapping[str, ResourceRights]] = {
    "AWS::S3::Bucket": ResourceRights(
        name="BucketName",
        lower=True,
        grants=(
            Grant(
                actions="s3:CreateBucket s3:DeleteBucket s3:ListBucket s3:PutBucketTagging s3:GetBucketTagging "
                "s3:DeleteBucketTagging s3:TagResource s3:UntagResource s3:ListTagsForResource "
                "s3:PutBucketPublicAccessBlock s3:PutBucketOwnershipControls s3:PutEncryptionConfiguration "
                "s3:GetAccelerateConfiguration s3:GetLifecycleConfiguration s3:GetBucketPublicAccessBlock "
                "s3:GetAnalyticsConfiguration s3:GetBucketCORS s3:GetEncryptionConfiguration "
                "s3:GetInventoryConfiguration s3:GetBucketLogging s3:GetMetricsConfiguration "
                "s3:GetBucketNotification s3:GetBucketVersioning s3:GetReplicationConfiguration s3:GetBucketWebsite "
                "s3:GetBucketObjectLockConfiguration s3:GetBucketAbac s3:GetBucketOwnershipControls s3:GetBucketAcl "
                "s3:GetIntelligentTieringConfiguration s3:GetBucketMetadataTableConfiguration",
                on=_BUCKET,
            ),
            Grant(actions="s3:PutLifecycleConfiguration", on=_BUCKET, when="LifecycleConfiguration"),
            Grant(actions="s3:PutBucketVersioning", on=_BUCKET, when="VersioningConfiguration"),
            Grant(actions="s3:PutBucketAcl", on=_BUCKET, when="AccessControl"),
        ),
        cleanup=(
            Grant(
                actions="s3:ListBucket s3:ListBucketVersions s3:ListBucketMultipartUploads s3:DeleteBucket", on=_BUCKET
            ),
            Grant(actions="s3:DeleteObject s3:DeleteObjectVersion s3:AbortMultipartUpload", on=_OBJECTS),
        ),
    ),
    "AWS::S3::BucketPolicy": ResourceRights(
        grants=(
            Grant(
                actions="s3:GetBucketPolicy s3:PutBucketPolicy s3:DeleteBucketPolicy",
                on=_BUCKET,
                of="Bucket",
            ),
        ),
    ),
    "AWS::Logs::LogGroup": ResourceRights(
        name="LogGroupName",
        grants=(
            Grant(
                actions="logs:CreateLogGroup logs:DeleteLogGroup logs:TagResource logs:UntagResource "
                "logs:ListTagsForResource logs:PutRetentionPolicy logs:DeleteRetentionPolicy "
                "logs:GetDataProtectionPolicy",
                on=_LOGS,
            ),
            Grant(actions="logs:DescribeLogGroups logs:DescribeIndexPolicies logs:DescribeResourcePolicies"),
        ),
        cleanup=(
            Grant(actions="logs:DescribeLogGroups"),
            Grant(actions="logs:DeleteLogGroup", on=_LOGS),
        ),
    ),
    # A filter ends with its log group, so a stack leaves none.
    "AWS::Logs::MetricFilter": ResourceRights(
        grants=(
            Grant(
                actions="logs:PutMetricFilter logs:DescribeMetricFilters logs:DeleteMetricFilter",
                on=_LOGS[1:],
                of="LogGroupName",
            ),
        ),
    ),
}

_ROLE_TYPES: Final[Mapping[str, ResourceRights]] = {
    "AWS::IAM::Role": ResourceRights(
        name="RoleName",
        grants=(
            Grant(
                actions="iam:CreateRole iam:GetRole iam:DeleteRole iam:UpdateRole iam:UpdateRoleDescription "
                "iam:UpdateAssumeRolePolicy iam:PutRolePolicy iam:GetRolePolicy iam:DeleteRolePolicy "
                "iam:ListRolePolicies iam:ListAttachedRolePolicies iam:TagRole iam:UntagRole iam:ListRoleTags",
                on=_ROLE,
            ),
            Grant(actions="iam:AttachRolePolicy iam:DetachRolePolicy", on=_ROLE, when="ManagedPolicyArns"),
            Grant(
                actions="iam:PutRolePermissionsBoundary iam:DeleteRolePermissionsBoundary",
                on=_ROLE,
                when="PermissionsBoundary",
            ),
        ),
        cleanup=(
            Grant(
                actions="iam:GetRole iam:ListRolePolicies iam:DeleteRolePolicy iam:ListAttachedRolePolicies "
                "iam:DetachRolePolicy iam:DeleteRole",
                on=_ROLE,
            ),
        ),
    ),
    "AWS::IAM::Policy": ResourceRights(
        grants=(Grant(actions="iam:PutRolePolicy iam:GetRolePolicy iam:DeleteRolePolicy", on=_ROLE, of="Roles"),),
    ),
}

_CALLED_TYPES: Final[Mapping[str, ResourceRights]] = {
    "AWS::Lambda::Function": ResourceRights(
        name="FunctionName",
        grants=(
            Grant(
                actions="lambda:CreateFunction lambda:GetFunction lambda:DeleteFunction "
                "lambda:UpdateFunctionConfiguration lambda:UpdateFunctionCode lambda:TagResource lambda:UntagResource "
                "lambda:ListTags lambda:GetRuntimeManagementConfig lambda:GetFunctionCodeSigningConfig "
                "lambda:GetFunctionRecursionConfig lambda:GetFunctionScalingConfig lambda:AssociateRuntimeAlias",
                on=_FUNCTION,
            ),
            # Lambda reads the code from the bootstrap's bucket with the rights of whoever creates the function.
            Grant(actions="s3:GetObject", on=_ASSETS, when="Code.S3Bucket"),
            _pass("Role", "lambda"),
        ),
        cleanup=(Grant(actions="lambda:GetFunction lambda:DeleteFunction", on=_FUNCTION),),
    ),
    "Custom::": ResourceRights(
        grants=(Grant(actions="lambda:InvokeFunction", on=_FUNCTION, of="ServiceToken"),),
    ),
    "AWS::SNS::Topic": ResourceRights(
        name="TopicName",
        grants=(
            Grant(
                actions="sns:CreateTopic sns:DeleteTopic sns:GetTopicAttributes sns:SetTopicAttributes "
                "sns:TagResource sns:UntagResource sns:ListTagsForResource sns:ListSubscriptionsByTopic "
                "sns:GetDataProtectionPolicy",
                on=_TOPIC,
            ),
        ),
        cleanup=(Grant(actions="sns:GetTopicAttributes sns:DeleteTopic", on=_TOPIC),),
    ),
    "AWS::SNS::TopicPolicy": ResourceRights(
        grants=(Grant(actions="sns:SetTopicAttributes", on=_TOPIC, of="Topics"),),
    ),
    "AWS::SNS::Subscription": ResourceRights(
        grants=(
            Grant(actions="sns:Subscribe", on=_TOPIC, of="TopicArn"),
            # These take no resource (Service Authorization Reference).
            Grant(actions="sns:Unsubscribe sns:GetSubscriptionAttributes sns:SetSubscriptionAttributes"),
        ),
    ),
    "AWS::Scheduler::ScheduleGroup": ResourceRights(
        name="Name",
        grants=(
            Grant(
                actions="scheduler:CreateScheduleGroup scheduler:GetScheduleGroup scheduler:DeleteScheduleGroup "
                "scheduler:TagResource scheduler:UntagResource scheduler:ListTagsForResource",
                on=_GROUP,
            ),
            Grant(actions="scheduler:DeleteSchedule", on=_SCHEDULES),
        ),
        cleanup=(
            Grant(actions="scheduler:GetScheduleGroup scheduler:DeleteScheduleGroup", on=_GROUP),
            Grant(actions="scheduler:DeleteSchedule", on=_SCHEDULES),
        ),
    ),
    "AWS::Scheduler::Schedule": ResourceRights(
        name="Name",
        grants=(
            Grant(
                actions="scheduler:CreateSchedule scheduler:GetSchedule scheduler:UpdateSchedule "
                "scheduler:DeleteSchedule",
                on=_SCHEDULES,
                of="GroupName",
            ),
            _pass("Target.RoleArn", "scheduler"),
        ),
        cleanup=(
            # The physical id of a schedule has no group, so the schedule is looked for in the list of all groups.
            Grant(actions="scheduler:ListSchedules"),
            Grant(actions="scheduler:DeleteSchedule", on=_SCHEDULES, of="GroupName"),
        ),
    ),
}

_WATCHING_TYPES: Final[Mapping[str, ResourceRights]] = {
    "AWS::CloudWatch::Alarm": ResourceRights(
        name="AlarmName",
        grants=(
            Grant(
                actions="cloudwatch:PutMetricAlarm cloudwatch:DescribeAlarms cloudwatch:DeleteAlarms "
                "cloudwatch:TagResource cloudwatch:UntagResource cloudwatch:ListTagsForResource",
                on=_ALARM,
            ),
        ),
        cleanup=(Grant(actions="cloudwatch:DescribeAlarms cloudwatch:DeleteAlarms", on=_ALARM),),
    ),
    "AWS::CloudWatch::Dashboard": ResourceRights(
        name="DashboardName",
        grants=(
            Grant(
                actions="cloudwatch:PutDashboard cloudwatch:GetDashboard cloudwatch:DeleteDashboards "
                "cloudwatch:TagResource cloudwatch:UntagResource cloudwatch:ListTagsForResource",
                on=_DASHBOARD,
            ),
        ),
        cleanup=(Grant(actions="cloudwatch:GetDashboard cloudwatch:DeleteDashboards", on=_DASHBOARD),),
    ),
    "AWS::Budgets::Budget": ResourceRights(
        name="Budget.BudgetName",
        grants=(
            Grant(
                actions="budgets:ModifyBudget budgets:ViewBudget budgets:TagResource budgets:UntagResource "
                "budgets:ListTagsForResource",
                on=_BUDGET,
            ),
        ),
        cleanup=(Grant(actions="budgets:ViewBudget budgets:ModifyBudget", on=_BUDGET),),
    ),
    "AWS::ApplicationAutoScaling::ScalableTarget": ResourceRights(
        grants=(
            Grant(
                actions="application-autoscaling:RegisterScalableTarget "
                "application-autoscaling:DeregisterScalableTarget",
                on=_SCALABLE,
                condition=_OF_SAGEMAKER,
            ),
            Grant(
                actions="application-autoscaling:PutScheduledAction application-autoscaling:DeleteScheduledAction",
                on=_SCALABLE,
                when="ScheduledActions",
                condition=_OF_SAGEMAKER,
            ),
            Grant(
                actions="application-autoscaling:TagResource application-autoscaling:UntagResource "
                "application-autoscaling:ListTagsForResource",
                on=_SCALABLE,
            ),
            Grant(
                actions="application-autoscaling:DescribeScalableTargets "
                "application-autoscaling:DescribeScheduledActions"
            ),
            Grant(
                actions="iam:CreateServiceLinkedRole",
                on=(_LINKED_ROLE,),
                condition={"StringEquals": {"iam:AWSServiceName": _LINKED_SERVICE}},
            ),
            Grant(
                actions="cloudwatch:PutMetricAlarm cloudwatch:DescribeAlarms cloudwatch:DeleteAlarms",
                on=("arn:{partition}:cloudwatch:{region}:{account}:alarm:TargetTracking-*",),
            ),
        ),
        cleanup=(
            Grant(actions="application-autoscaling:DescribeScalableTargets"),
            Grant(actions="application-autoscaling:DeregisterScalableTarget", on=_SCALABLE, condition=_OF_SAGEMAKER),
        ),
    ),
    "AWS::ApplicationAutoScaling::ScalingPolicy": ResourceRights(
        grants=(
            Grant(
                actions="application-autoscaling:PutScalingPolicy application-autoscaling:DeleteScalingPolicy",
                on=_SCALABLE,
                condition=_OF_SAGEMAKER,
            ),
            Grant(actions="application-autoscaling:DescribeScalingPolicies cloudwatch:GetMetricData"),
        ),
    ),
    "AWS::EC2::VPCEndpoint": ResourceRights(
        grants=(
            Grant(
                actions="ec2:CreateVpcEndpoint ec2:ModifyVpcEndpoint ec2:DeleteVpcEndpoints ec2:CreateTags "
                "ec2:DeleteTags",
                on=(_EC2 + "vpc-endpoint/*",),
            ),
            Grant(actions="ec2:CreateVpcEndpoint", on=(_EC2 + "vpc/{name}",), of="VpcId"),
            Grant(
                actions="ec2:CreateVpcEndpoint ec2:ModifyVpcEndpoint",
                on=(_EC2 + "route-table/{name}",),
                of="RouteTableIds",
            ),
            Grant(actions="ec2:DescribeVpcEndpoints ec2:DescribeVpcs ec2:DescribeSubnets ec2:DescribeSecurityGroups"),
        ),
        cleanup=(
            Grant(actions="ec2:DescribeVpcEndpoints"),
            Grant(actions="ec2:DeleteVpcEndpoints", on=(_EC2 + "vpc-endpoint/*",)),
        ),
    ),
}

RESOURCE_TYPES: Final[Mapping[str, ResourceRights]] = {
    **_SAGEMAKER_TYPES,
    **_STORAGE_TYPES,
    **_ROLE_TYPES,
    **_CALLED_TYPES,
    **_WATCHING_TYPES,
    # This resource exists in the stack only, so it needs no right.
    "AWS::CDK::Metadata": ResourceRights(grants=()),
}
"""The rights by resource type; `Custom::` stands for each type of a custom resource."""


def rights_of(resource_type: str) -> ResourceRights | None:
    """Return the rights for a resource type; None if the table of rights lacks the type."""
    return RESOURCE_TYPES.get("Custom::" if resource_type.startswith("Custom::") else resource_type)
