"""The permissions with which CloudFormation changes resources: the stack role's, or without a role the caller's.

If a stack has a role, a session `AWSCloudFormation` of that role changes its resources; otherwise the caller's identity
does (CloudFormation user guide, "CloudFormation service role"). The API calls for a resource are signed with that
identity's key, so the gateway checks their permissions. The schema of the resource type lists more actions than the
emulation calls; this module checks the permissions for all of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from local_aws.cloudformation.errors import ResourceFailure, ValidationError
from local_aws.cloudformation.templates.handlers import handler_actions
from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.rights.judge import SESSIONS, DeniedError
from local_aws.rights.policies import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local_aws.cloudformation.state import Live, Stack
    from local_aws.cloudformation.templates.handlers import Verb
    from local_aws.kit.access_keys import AccessKey, AccessKeys
    from local_aws.rights.judge import Judge

SESSION: Final = "AWSCloudFormation"
SERVICE: Final = "cloudformation.amazonaws.com"

calling: ContextVar[AccessKey | None] = ContextVar("calling", default=None)
"""The key that signed the request to CloudFormation that is being answered."""

_LINKED: Final = "sagemaker.application-autoscaling.amazonaws.com"
_LINKED_ROLE: Final = (
    f"arn:{PARTITION}:iam::{ACCOUNT_ID}:role/aws-service-role/{_LINKED}/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)


class HandlerRights:
    """Finds the key that signs the calls for a stack's resources, and checks the permissions that the calls need.

    Args:
        judge: judges the actions.
        keys: makes the keys of stacks' roles.
    """

    def __init__(self, judge: Judge, keys: AccessKeys) -> None:
        self._judge = judge
        self._keys = keys

    def signer(self, stack: Stack) -> AccessKey | None:
        """Return the key that signs calls for a stack's resources; None if no IAM permissions limit the calls."""
        role = stack.options.get("RoleARN")
        if role is not None:
            return self._keys.for_role(str(role), SESSION)
        caller = stack.caller
        return caller if caller is not None and caller.principal.startswith(SESSIONS) else None

    def check_role(self, role_arn: str | None) -> None:
        """Check that CloudFormation may assume a role that a request passes.

        Raises:
            ValidationError: there is no such role, or it does not trust CloudFormation.
        """
        if role_arn is not None and not self._judge.may_assume(role_arn, SERVICE):
            raise ValidationError(f"Role {role_arn} is invalid or cannot be assumed")

    def check(self, stack: Stack, verb: Verb, live: Live) -> None:
        """Check that a stack's role or caller may do all actions that AWS's handler of a resource needs.

        Raises:
            ResourceFailure: an action of the resource type's schema is not allowed; the text is AWS's.
        """
        signer = self.signer(stack)
        if signer is None:
            return
        for action in handler_actions(live.type, verb, live.properties):
            # The call that passes a role names the role, so the gateway judges it.
            if action == "iam:PassRole":
                continue
            for resource in _resources(action, live, stack.region):
                request = Request(action=action, resource=resource, context=_context(action, live))
                try:
                    self._judge.check_request(signer.principal, request, stack.region)
                except DeniedError as denial:
                    raise ResourceFailure(_message(str(denial), live.type)) from denial


def _message(denial: str, resource_type: str) -> str:
    service = resource_type.split("::")[1]
    text = f"{denial} (Service: {service}, Status Code: 403)"
    return f'Resource handler returned message: "{text}" (HandlerErrorCode: AccessDenied)'


def _context(action: str, live: Live) -> dict[str, list[str]]:
    if action == "iam:CreateServiceLinkedRole":
        return {"iam:awsservicename": [_LINKED]}
    if action.startswith("application-autoscaling:") and "ServiceNamespace" in live.properties:
        return {
            "application-autoscaling:service-namespace": [str(live.properties["ServiceNamespace"])],
            "application-autoscaling:scalable-dimension": [str(live.properties["ScalableDimension"])],
        }
    if action.startswith("application-autoscaling:"):
        # A policy names its target by an id whose last part is the namespace.
        return {"application-autoscaling:service-namespace": ["sagemaker"]}
    return {}


# Service Authorization Reference: actions that are evaluated on all resources only.
_WITHOUT_RESOURCE: Final = (
    "logs:DescribeLogGroups", "logs:DescribeIndexPolicies", "logs:DescribeResourcePolicies",
    "application-autoscaling:Describe", "ec2:Describe", "cloudwatch:GetMetric",
)  # fmt: skip
_OF_SUBSCRIPTIONS: Final = ("sns:Unsubscribe", "sns:GetSubscription", "sns:SetSubscription")


def _resources(action: str, live: Live, region: str) -> Iterator[str]:
    """Yield the ARNs on which IAM evaluates an action of a resource's handler."""
    if action.startswith((*_WITHOUT_RESOURCE, *_OF_SUBSCRIPTIONS)):
        yield "*"
    elif (
        special := _SPECIAL.get((live.type, action), _SPECIAL.get((live.type, action.partition(":")[0])))
    ) is not None:
        yield from special(live, region)
    elif (own := _OWN.get(live.type)) is not None:
        yield from own(live, region)
    else:
        yield live.physical_id


def _arn(service: str, region: str, resource: str) -> str:
    return f"arn:{PARTITION}:{service}:{region}:{ACCOUNT_ID}:{resource}"


def _code(live: Live, region: str) -> list[str]:
    del region
    code = live.properties["Code"]
    return [f"arn:{PARTITION}:s3:::{code['S3Bucket']}/{code['S3Key']}"]


_OWN: Final[Mapping[str, Callable[[Live, str], list[str]]]] = {
    "AWS::S3::Bucket": lambda live, _: [f"arn:{PARTITION}:s3:::{live.physical_id}"],
    "AWS::S3::BucketPolicy": lambda live, _: [f"arn:{PARTITION}:s3:::{live.physical_id}"],
    "AWS::IAM::Policy": lambda live, _: [_arn("iam", "", f"role/{role}") for role in live.properties["Roles"]],
    "AWS::SNS::TopicPolicy": lambda live, _: list(live.properties["Topics"]),
    "AWS::SNS::Subscription": lambda live, _: [str(live.properties["TopicArn"])],
    "AWS::CloudWatch::Dashboard": lambda live, _: [_arn("cloudwatch", "", f"dashboard/{live.physical_id}")],
    "AWS::Budgets::Budget": lambda live, _: [_arn("budgets", "", f"budget/{live.attributes['BudgetName']}")],
    "AWS::ApplicationAutoScaling::ScalableTarget": lambda _, region: [
        _arn("application-autoscaling", region, "scalable-target/*")
    ],
    "AWS::ApplicationAutoScaling::ScalingPolicy": lambda _, region: [
        _arn("application-autoscaling", region, "scalable-target/*")
    ],
    "AWS::EC2::VPCEndpoint": lambda live, region: [_arn("ec2", region, f"vpc-endpoint/{live.physical_id}")],
    "AWS::Logs::MetricFilter": lambda live, region: [
        _arn("logs", region, f"log-group:{live.properties['LogGroupName']}:*")
    ],
    "AWS::Logs::LogGroup": lambda live, region: [_arn("logs", region, f"log-group:{live.physical_id}:*")],
    "AWS::IAM::Role": lambda live, _: [_arn("iam", "", f"role/{live.physical_id}")],
    "AWS::Lambda::Function": lambda live, region: [_arn("lambda", region, f"function:{live.physical_id}")],
    "AWS::CloudWatch::Alarm": lambda live, region: [_arn("cloudwatch", region, f"alarm:{live.physical_id}")],
    "AWS::Scheduler::ScheduleGroup": lambda live, region: [
        _arn("scheduler", region, f"schedule-group/{live.physical_id}")
    ],
    "AWS::Scheduler::Schedule": lambda live, region: [
        _arn("scheduler", region, f"schedule/{live.properties.get('GroupName', 'default')}/{live.physical_id}")
    ],
    "AWS::KMS::Key": lambda live, region: [_arn("kms", region, f"key/{live.physical_id}")],
    "AWS::ECR::Repository": lambda live, region: [_arn("ecr", region, f"repository/{live.physical_id}")],
    "AWS::SSM::Parameter": lambda live, region: [_arn("ssm", region, f"parameter/{live.physical_id.lstrip('/')}")],
}
"""The ARNs of resources whose physical id is no ARN, by type. A resource that could not be completed has no attributes,
so the ARNs are made from the id; a budget is completed in one call, and its id is not its name."""

_SPECIAL: Final[Mapping[tuple[str, str], Callable[[Live, str], list[str]]]] = {
    ("AWS::Lambda::Function", "s3"): _code,
    ("AWS::Scheduler::ScheduleGroup", "scheduler:DeleteSchedule"): lambda live, region: [
        _arn("scheduler", region, f"schedule/{live.physical_id}/a-schedule-of-the-group")
    ],
    ("AWS::SageMaker::EndpointConfig", "kms"): lambda live, _: [str(live.properties["KmsKeyId"])],
    ("AWS::ApplicationAutoScaling::ScalableTarget", "iam"): lambda _live, _: [_LINKED_ROLE],
    # User guide: the names of the alarms that the service makes for target tracking.
    ("AWS::ApplicationAutoScaling::ScalableTarget", "cloudwatch"): lambda live, region: [
        _arn("cloudwatch", region, f"alarm:TargetTracking-{live.properties['ResourceId']}-AlarmHigh-1")
    ],
}
"""The ARNs of an action's resources that are not the resource itself, by type and action, or by type and service."""


def caller_client(clients: Any, service: str, region: str) -> Any:  # boto3's clients
    """Return a client with the caller's permissions, for reads of what a request names, such as a template in S3."""
    key = calling.get()
    if key is None or not key.principal.startswith(SESSIONS):
        return clients.get(service, region)
    return clients.signed_by(key, service, region)
