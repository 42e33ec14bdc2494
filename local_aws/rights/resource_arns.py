"""The resources that IAM evaluates for each operation, and the additional actions for requests with tags.

Source: Service Authorization Reference, the resource types of each action. An operation that is not in the table has
the resource `*`, which a policy that names resources does not allow; so the emulation is never more permissive than
AWS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from local_aws.kit.account import ACCOUNT_ID, PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Call:
    """One signed request: the service and region that it was signed for, AWS's name of the operation, and parameters.

    An S3 request has the parameters Bucket, Key and Prefix, and if they apply Keys, Versioned, CopySource and
    SSEKMSKeyId. A request of the query protocol has the keys of its form as parameters, with texts as values.
    """

    service: str
    region: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def arn(self, resource: str, *, service: str | None = None) -> str:
        """Return the ARN of a resource in the account and region of this request."""
        return f"arn:{PARTITION}:{service or self.service}:{self.region}:{ACCOUNT_ID}:{resource}"


def resources_of(call: Call) -> list[str]:
    """Return the ARNs of the resources on which IAM evaluates a call's action; `*` for an action without a resource."""
    found = _RESOURCES.get((call.service, call.operation))
    return ["*"] if found is None else found(call)


def has_tags(call: Call) -> bool:
    """Return True if a request has tags; the query protocol has a member for each tag, such as `Tags.member.1`."""
    return any(name.partition(".")[0] in {"Tags", "tags"} and value for name, value in call.parameters.items())


def _text(call: Call, *names: str) -> str:
    return next((str(call.parameters[name]) for name in names if call.parameters.get(name)), "*")


def _arn(kind: str, *names: str, service: str | None = None) -> Callable[[Call], list[str]]:
    """Return a function that makes the ARN from a call's parameter, which is a resource's name or already its ARN."""

    def made(call: Call) -> list[str]:
        name = _text(call, *names)
        return [name if name.startswith("arn:") else call.arn(f"{kind}{name}", service=service)]

    return made


def _global(service: str, kind: str, *names: str) -> Callable[[Call], list[str]]:
    """Return a function that makes the ARN, without a region, of the resource that a call's parameter names."""
    return lambda call: [f"arn:{PARTITION}:{service}::{ACCOUNT_ID}:{kind}{_text(call, *names)}"]


def _plain(*names: str) -> Callable[[Call], list[str]]:
    return lambda call: [_text(call, *names)]


def _each(kind: str, parameter: str, *, service: str) -> Callable[[Call], list[str]]:
    """Return a function that makes an ARN of each name in a call's list; if the list is missing, one ARN with `*`."""
    return lambda call: [call.arn(f"{kind}{name}", service=service) for name in call.parameters.get(parameter) or "*"]


def _sagemaker(*nouns: str) -> Callable[[Call], list[str]]:
    # SageMaker's ARNs are in lower case whatever the case of the name (issue amazon-sagemaker-examples#293).
    return lambda call: [
        call.arn(f"{_KINDS[noun]}/{str(call.parameters.get(f'{noun}Name', '*')).lower()}") for noun in nouns
    ]


def _stack(call: Call) -> list[str]:
    name = _text(call, "StackName")
    return [name if name.startswith("arn:") else "*" if name == "*" else call.arn(f"stack/{name}/*")]


def _dashboards(call: Call) -> list[str]:
    names = call.parameters.get("DashboardNames") or [_text(call, "DashboardName")]
    return [f"arn:{PARTITION}:cloudwatch::{ACCOUNT_ID}:dashboard/{name}" for name in names]


def _budget(call: Call) -> list[str]:
    name = (call.parameters.get("Budget") or {}).get("BudgetName") or _text(call, "BudgetName")
    return [f"arn:{PARTITION}:budgets::{ACCOUNT_ID}:budget/{name}"]


def _log_group(call: Call) -> list[str]:
    if (arn := _text(call, "resourceArn")).startswith("arn:"):
        return [arn]
    return [call.arn(f"log-group:{_text(call, 'logGroupName', 'logGroupIdentifier')}:*")]


def _repository(call: Call) -> list[str]:
    owner = call.parameters.get("registryId", ACCOUNT_ID)
    return [f"arn:{PARTITION}:ecr:{call.region}:{owner}:repository/{_text(call, 'repositoryName')}"]


def _schedule(call: Call) -> list[str]:
    return [call.arn(f"schedule/{call.parameters.get('GroupName', 'default')}/{_text(call, 'Name')}")]


def _ec2(*kinds: str) -> Callable[[Call], list[str]]:
    """Return a function that makes the ARNs of a call's EC2 resources of these kinds, from the call's ids."""

    def made(call: Call) -> list[str]:
        found = []
        for kind in kinds:
            member = _EC2_MEMBERS[kind]
            ids = [str(value) for name, value in call.parameters.items() if name.partition(".")[0] == member]
            # An endpoint that is being created has no id yet.
            found += [call.arn(f"{kind}/{one}") for one in ids or (["*"] if kind == "vpc-endpoint" else [])]
        return found

    return made


_KINDS: Final[Mapping[str, str]] = {
    "Endpoint": "endpoint", "EndpointConfig": "endpoint-config", "Model": "model",
    "InferenceComponent": "inference-component",
}  # fmt: skip
_EC2_MEMBERS: Final[Mapping[str, str]] = {
    "vpc-endpoint": "VpcEndpointId", "vpc": "VpcId", "route-table": "RouteTableId",
}  # fmt: skip


def _table(service: str, resources: Callable[[Call], list[str]], operations: str) -> dict[Any, Any]:
    return {(service, operation): resources for operation in operations.split()}


_RESOURCES: Final[Mapping[tuple[str, str], Callable[[Call], list[str]]]] = {
    **{
        ("sagemaker", f"{verb}{noun}"): _sagemaker(noun)
        for noun in _KINDS
        for verb in ("Create", "Delete", "Describe", "Update")
    },
    # API reference, CreateEndpoint: its example policies name the endpoint and its configuration.
    **_table("sagemaker", _sagemaker("Endpoint", "EndpointConfig"), "CreateEndpoint UpdateEndpoint"),
    # No source says if the endpoint is evaluated too, so both have to be allowed here.
    **_table("sagemaker", _sagemaker("InferenceComponent", "Endpoint"), "CreateInferenceComponent"),
    **_table("sagemaker", _sagemaker("Endpoint"), "UpdateEndpointWeightsAndCapacities InvokeEndpoint"),
    **_table("sagemaker", _sagemaker("InferenceComponent"), "UpdateInferenceComponentRuntimeConfig"),
    **_table("sagemaker", _plain("ResourceArn"), "AddTags DeleteTags ListTags"),
    **_table(
        "sns",
        _arn("", "TopicArn", "ResourceArn", "Name"),
        "Publish CreateTopic DeleteTopic GetTopicAttributes SetTopicAttributes Subscribe TagResource UntagResource "
        "ListTagsForResource ListSubscriptionsByTopic",
    ),
    **_table("sts", _plain("RoleArn"), "AssumeRole"),
    **_table(
        "kms",
        _arn("key/", "KeyId"),
        "Decrypt GenerateDataKey DescribeKey CreateGrant PutKeyPolicy EnableKeyRotation ScheduleKeyDeletion",
    ),
    ("ssm", "GetParameter"): lambda call: [call.arn(f"parameter/{_text(call, 'Name').lstrip('/')}")],
    ("ssm", "GetParameters"): lambda call: [
        call.arn(f"parameter/{str(name).lstrip('/')}") for name in call.parameters.get("Names") or "*"
    ],
    **_table(
        "iam",
        _global("iam", "role/", "RoleName"),
        "CreateRole GetRole DeleteRole UpdateRole UpdateAssumeRolePolicy PutRolePolicy GetRolePolicy DeleteRolePolicy "
        "ListRolePolicies ListAttachedRolePolicies AttachRolePolicy DetachRolePolicy TagRole UntagRole ListRoleTags "
        "PutRolePermissionsBoundary DeleteRolePermissionsBoundary",
    ),
    **_table(
        "lambda",
        _arn("function:", "FunctionName", "Resource"),
        "CreateFunction GetFunction GetFunctionConfiguration DeleteFunction UpdateFunctionCode "
        "UpdateFunctionConfiguration Invoke TagResource UntagResource ListTags",
    ),
    **_table(
        "logs",
        _log_group,
        "CreateLogGroup DeleteLogGroup PutRetentionPolicy DeleteRetentionPolicy TagResource UntagResource "
        "ListTagsForResource CreateLogStream PutLogEvents DescribeLogStreams FilterLogEvents GetLogEvents "
        "PutMetricFilter DescribeMetricFilters DeleteMetricFilter",
    ),
    **_table("monitoring", _each("alarm:", "AlarmNames", service="cloudwatch"), "DescribeAlarms DeleteAlarms"),
    **_table("monitoring", _arn("alarm:", "AlarmName", service="cloudwatch"), "PutMetricAlarm"),
    **_table("monitoring", _plain("ResourceARN"), "TagResource UntagResource ListTagsForResource"),
    **_table("monitoring", _dashboards, "PutDashboard GetDashboard DeleteDashboards"),
    **_table("budgets", _budget, "CreateBudget UpdateBudget DeleteBudget DescribeBudget"),
    **_table(
        "application-autoscaling",
        lambda call: [call.arn("scalable-target/*")],
        "RegisterScalableTarget DeregisterScalableTarget PutScalingPolicy DeleteScalingPolicy PutScheduledAction "
        "DeleteScheduledAction",
    ),
    **_table("scheduler", _schedule, "CreateSchedule DeleteSchedule GetSchedule UpdateSchedule"),
    **_table(
        "scheduler",
        _arn("schedule-group/", "Name"),
        "CreateScheduleGroup GetScheduleGroup DeleteScheduleGroup",
    ),
    **_table("scheduler", _plain("ResourceArn"), "TagResource UntagResource ListTagsForResource"),
    **_table("ec2", _ec2("vpc-endpoint", "vpc", "route-table"), "CreateVpcEndpoint ModifyVpcEndpoint"),
    **_table("ec2", _ec2("vpc-endpoint"), "DeleteVpcEndpoints"),
    ("ec2", "CreateTags"): lambda call: [
        call.arn(f"vpc-endpoint/{one}") for name, one in call.parameters.items() if name.startswith("ResourceId.")
    ],
    ("ecr", "BatchGetImage"): _repository,
    **_table("secretsmanager", _arn("secret:", "SecretId"), "GetSecretValue"),
    **_table(
        "cloudformation",
        _stack,
        "CreateChangeSet ExecuteChangeSet DescribeChangeSet DeleteChangeSet DescribeStacks DescribeStackEvents "
        "GetTemplate DeleteStack UpdateTerminationProtection CreateStack UpdateStack ListStackResources "
        "DescribeStackResources RollbackStack ContinueUpdateRollback",
    ),
}

TAGGED_AT_CREATION: Final[Mapping[tuple[str, str], str]] = {
    **{("sagemaker", f"Create{noun}"): "AddTags" for noun in _KINDS},
    ("logs", "CreateLogGroup"): "TagResource",
    ("lambda", "CreateFunction"): "TagResource",
    ("iam", "CreateRole"): "TagRole",
    ("sns", "CreateTopic"): "TagResource",
    ("monitoring", "PutMetricAlarm"): "TagResource",
    ("monitoring", "PutDashboard"): "TagResource",
    ("scheduler", "CreateScheduleGroup"): "TagResource",
    ("application-autoscaling", "RegisterScalableTarget"): "TagResource",
    ("ecr", "CreateRepository"): "TagResource",
    ("kms", "CreateKey"): "TagResource",
}
"""The actions that a request with tags needs, on the resource that the request creates (API reference of each)."""
