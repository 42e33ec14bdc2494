"""The types of resources that a stack of this project creates: what each costs, whether one exists, and its removal.

The order of the table is the order of removal: what scales before what is scaled, what calls before what it calls.
`bills` is stated for resources that cost while nobody calls them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.archives.bucket import delete_objects
from cohost.errors import CleanupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import boto3

    Call = Callable[[boto3.Session, str], Any]
    By = str | Callable[[boto3.Session, str], dict[str, Any]]


# SageMaker retries a failing start-up for an hour and more, and rejects every deletion meanwhile.
LIMIT_S = 2 * 60 * 60.0


@dataclass(frozen=True, kw_only=True)
class Polling:
    """Options of a wait: the seconds between polls, the longest wait, and a callback that receives what is awaited."""

    poll_s: float = 10.0
    limit_s: float = LIMIT_S
    tell: Callable[[str], None] = lambda _: None

    def until(self, what: str, look: Callable[[], str | None]) -> None:
        """Wait while `look` returns the name of a state; None ends the wait.

        Raises:
            CleanupError: the limit has passed.
        """
        deadline = time.monotonic() + self.limit_s
        while (state := look()) is not None:
            self.tell(f"{what} is {state}; waiting")
            if time.monotonic() + self.poll_s > deadline:
                raise CleanupError(
                    "resource-unsettled",
                    what,
                    f"is {state} after {self.limit_s:g} s",
                    allowed="an end within that time",
                    fix="look into its events, and run `cohost cleanup` again, which continues from there",
                )
            time.sleep(self.poll_s)


# Error codes of services for a missing resource; SageMaker has none of its own for it.
_MISSING_CODES: Final = frozenset(
    {
        "404",
        "NoSuchBucket",
        "NoSuchEntity",
        "NotFound",
        "NotFoundException",
        "ResourceNotFound",
        "ResourceNotFoundException",
        "InvalidVpcEndpointId.NotFound",
        "ObjectNotFoundException",
    }
)
_MISSING_TEXTS: Final = ("Could not find", "does not exist")


@dataclass(frozen=True)
class Kind:
    """One type of resource, by its name in CloudFormation.

    `bills` is what it costs while it exists, None for nothing. `there` and `remove` take a session and the name;
    `there` may raise the service's error for a missing resource. `state` is the status of one that takes time to
    change.
    """

    type: str
    bills: str | None
    there: Call
    remove: Call
    state: Call | None = None

    def exists(self, session: boto3.Session, name: str) -> bool:
        """Return True if the resource exists."""
        try:
            return bool(self.there(session, name))
        except ClientError as error:
            if is_missing(error):
                return False
            raise


def is_missing(error: ClientError) -> bool:
    """Return True if a service's error means that the resource does not exist."""
    detail = error.response["Error"]
    return detail.get("Code") in _MISSING_CODES or any(text in detail.get("Message", "") for text in _MISSING_TEXTS)


def wait_until_steady(session: boto3.Session, kind: Kind, name: str, polling: Polling) -> None:
    """Wait while a resource is in a state in which SageMaker rejects its deletion: Creating, Updating and the like.

    Raises:
        CleanupError: it did not come to rest in time.
    """
    if (state := kind.state) is None:
        return

    def transit() -> str | None:
        try:
            now = state(session, name)
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        return now if now.endswith("ing") else None

    polling.until(f"{kind.type} {name}", transit)


def names_by_arn(session: boto3.Session, resource_type: str, **filters: str) -> dict[str, str]:
    """Return the names of SageMaker's resources of one type by their ARNs, in which the names are lower case."""
    operation, noun = LISTED[resource_type]
    client: Any = session.client("sagemaker")
    return {
        one[f"{noun}Arn"]: one[f"{noun}Name"]
        for page in client.get_paginator(operation).paginate(**filters)
        for one in page[f"{noun}s"]
    }


def name_in(physical_id: str) -> str:
    """Return the name in a physical id: of SageMaker's, which are ARNs, the last part, in lower case."""
    return physical_id.rpartition("/")[2] if _SAGEMAKER_ARN.match(physical_id) else physical_id


def _arguments(by: By, session: boto3.Session, name: str) -> Mapping[str, Any]:
    """Return an operation's arguments: one by its name, a list where that ends in "s", or those of a function."""
    return by(session, name) if callable(by) else {by: [name] if by.endswith("s") else name}


def _call(service: str, operation: str, by: By, field: str | None = None) -> Call:
    """Return a call of an operation for one resource; it returns the answer, or one field of it."""

    def call(session: boto3.Session, name: str) -> Any:
        client: Any = session.client(service)  # type: ignore[call-overload]
        answer = getattr(client, operation)(**_arguments(by, session, name))
        return answer if field is None else answer[field]

    return call


def _both(service: str, describe: str, remove: str, by: By) -> tuple[Call, Call]:
    """Return the calls of a type that one operation describes and another deletes, both by the same arguments."""
    return _call(service, describe, by), _call(service, remove, by)


def _target(session: boto3.Session, name: str) -> dict[str, Any]:
    del session
    resource, dimension, namespace = name.split("|")
    return {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}


def _targets(session: boto3.Session, name: str) -> dict[str, Any]:
    arguments = _target(session, name)
    return {"ResourceIds": [arguments.pop("ResourceId")], **arguments}


def _schedule(session: boto3.Session, name: str) -> dict[str, Any]:
    del session
    group, _, plain = name.rpartition("|")
    return {"Name": plain, **({"GroupName": group} if group else {})}


def _budget(session: boto3.Session, name: str) -> dict[str, Any]:
    return {"AccountId": session.client("sts").get_caller_identity()["Account"], "BudgetName": name}


def _log_group(session: boto3.Session, name: str) -> bool:
    groups = session.client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in groups)


def _delete_role(session: boto3.Session, name: str) -> None:
    iam = session.client("iam")
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        iam.delete_role_policy(RoleName=name, PolicyName=policy)
    for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=name, PolicyArn=attached["PolicyArn"])
    iam.delete_role(RoleName=name)


def empty_bucket(session: boto3.Session, name: str) -> None:
    """Delete every object of a bucket, old versions and unfinished uploads too."""
    s3 = session.client("s3")
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        delete_objects(s3, name, [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in found])
    for uploads in s3.get_paginator("list_multipart_uploads").paginate(Bucket=name):
        for upload in uploads.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])


def _delete_bucket(session: boto3.Session, name: str) -> None:
    empty_bucket(session, name)
    session.client("s3").delete_bucket(Bucket=name)


BUCKET: Final = "AWS::S3::Bucket"
COMPONENT: Final = "AWS::SageMaker::InferenceComponent"
CONFIG: Final = "AWS::SageMaker::EndpointConfig"
ENDPOINT: Final = "AWS::SageMaker::Endpoint"
LOG_GROUP: Final = "AWS::Logs::LogGroup"
MODEL: Final = "AWS::SageMaker::Model"

LISTED: Final = {
    COMPONENT: ("list_inference_components", "InferenceComponent"),
    CONFIG: ("list_endpoint_configs", "EndpointConfig"),
    ENDPOINT: ("list_endpoints", "Endpoint"),
    MODEL: ("list_models", "Model"),
}
_SAGEMAKER_ARN: Final = re.compile(r"arn:[^:]+:sagemaker:")
_SAGEMAKER: Final = "sagemaker"
_SCALING: Final = "application-autoscaling"

KINDS: Final[dict[str, Kind]] = {
    kind.type: kind
    for kind in (
        Kind("AWS::Scheduler::Schedule", None, *_both("scheduler", "get_schedule", "delete_schedule", _schedule)),
        Kind(
            "AWS::Scheduler::ScheduleGroup",
            None,
            *_both("scheduler", "get_schedule_group", "delete_schedule_group", "Name"),
        ),
        Kind(
            "AWS::ApplicationAutoScaling::ScalableTarget",
            None,
            _call(_SCALING, "describe_scalable_targets", _targets, "ScalableTargets"),
            _call(_SCALING, "deregister_scalable_target", _target),
        ),
        Kind(
            "AWS::CloudWatch::Alarm",
            "0.10 to 0.30 USD a month",
            _call("cloudwatch", "describe_alarms", "AlarmNames", "MetricAlarms"),
            _call("cloudwatch", "delete_alarms", "AlarmNames"),
        ),
        Kind(
            "AWS::CloudWatch::Dashboard",
            "3 USD a month beyond the first three",
            _call("cloudwatch", "get_dashboard", "DashboardName"),
            _call("cloudwatch", "delete_dashboards", "DashboardNames"),
        ),
        Kind(
            COMPONENT,
            "its copies keep instances running",
            *_both(_SAGEMAKER, "describe_inference_component", "delete_inference_component", "InferenceComponentName"),
            _call(_SAGEMAKER, "describe_inference_component", "InferenceComponentName", "InferenceComponentStatus"),
        ),
        Kind(
            ENDPOINT,
            "every hour, called or not",
            *_both(_SAGEMAKER, "describe_endpoint", "delete_endpoint", "EndpointName"),
            _call(_SAGEMAKER, "describe_endpoint", "EndpointName", "EndpointStatus"),
        ),
        Kind(
            CONFIG, None, *_both(_SAGEMAKER, "describe_endpoint_config", "delete_endpoint_config", "EndpointConfigName")
        ),
        Kind(MODEL, None, *_both(_SAGEMAKER, "describe_model", "delete_model", "ModelName")),
        Kind("AWS::Lambda::Function", None, *_both("lambda", "get_function", "delete_function", "FunctionName")),
        Kind("AWS::SNS::Topic", None, *_both("sns", "get_topic_attributes", "delete_topic", "TopicArn")),
        Kind(LOG_GROUP, "0.03 USD a GB and month", _log_group, _call("logs", "delete_log_group", "logGroupName")),
        Kind(
            "AWS::EC2::VPCEndpoint",
            None,  # of the kind "gateway"
            _call("ec2", "describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints"),
            _call("ec2", "delete_vpc_endpoints", "VpcEndpointIds"),
        ),
        Kind("AWS::Budgets::Budget", None, *_both("budgets", "describe_budget", "delete_budget", _budget)),
        Kind("AWS::IAM::Role", None, _call("iam", "get_role", "RoleName"), _delete_role),
        Kind(BUCKET, "0.023 USD a GB and month", _call("s3", "head_bucket", "Bucket"), _delete_bucket),
    )
}

ORDER: Final = tuple(KINDS)
