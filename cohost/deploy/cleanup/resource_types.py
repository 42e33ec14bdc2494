"""The types of resources that the stacks of this project create, with cost, test for existence, and removal of each.

KINDS has the types in the order of removal: scaling resources before the resources that they scale, callers before the
resources that they call. `bills` is set for types whose resources cost money even while nobody calls them.
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


# SageMaker retries the failing start of an endpoint for over an hour, and rejects its deletion during that time.
LIMIT_S = 2 * 60 * 60.0


@dataclass(frozen=True, kw_only=True)
class Polling:
    """Options of a wait: `poll_s` seconds between polls, `limit_s` seconds at most, and the callback `tell`.

    `tell` receives a line of text at each poll, which names the awaited resource and its state.
    """

    poll_s: float = 10.0
    limit_s: float = LIMIT_S
    tell: Callable[[str], None] = lambda _: None

    def until(self, what: str, look: Callable[[], str | None]) -> None:
        """Call `look` every `poll_s` seconds until it returns None instead of the name of a state.

        Raises:
            CleanupError: `look` still returned a state when `limit_s` seconds had passed.
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


# Error codes of AWS services for a missing resource. SageMaker has no such code, so its messages are compared instead.
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

    `bills` states the costs of a resource while it exists; None means no costs. The functions `there`, `remove` and
    `state` take a session and the resource's name: `there` returns a true value if the resource exists, or may raise
    the service's error if not; `remove` deletes it; `state` returns its status, and is None for types whose resources
    change at once.
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
    """Wait while a resource's status ends in "ing", such as Creating, because SageMaker then rejects its deletion.

    Raises:
        CleanupError: the resource still had such a status when the limit of `polling` had passed.
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
    """Return the names of SageMaker's resources of one type, by ARN, because an ARN has the name only in lower case."""
    operation, noun = LISTED[resource_type]
    client: Any = session.client("sagemaker")
    return {
        one[f"{noun}Arn"]: one[f"{noun}Name"]
        for page in client.get_paginator(operation).paginate(**filters)
        for one in page[f"{noun}s"]
    }


def name_in(physical_id: str) -> str:
    """Return the resource's name in a physical id.

    SageMaker's physical ids are ARNs; the last part is the name, in lower case. A physical id that is no ARN is
    returned unchanged.
    """
    return physical_id.rpartition("/")[2] if _SAGEMAKER_ARN.match(physical_id) else physical_id


def _arguments(by: By, session: boto3.Session, name: str) -> Mapping[str, Any]:
    """Return an operation's arguments for a resource.

    If `by` is a function, return its result. If `by` is a text, it names the operation's only argument. The value of
    this argument is the resource's name, or, if `by` ends in "s", a list with this one name.
    """
    return by(session, name) if callable(by) else {by: [name] if by.endswith("s") else name}


def _call(service: str, operation: str, by: By, field: str | None = None) -> Call:
    """Return a function that calls an operation for one resource and returns the answer, or only its field `field`."""

    def call(session: boto3.Session, name: str) -> Any:
        client: Any = session.client(service)  # type: ignore[call-overload]
        answer = getattr(client, operation)(**_arguments(by, session, name))
        return answer if field is None else answer[field]

    return call


def _both(service: str, describe: str, remove: str, by: By) -> tuple[Call, Call]:
    """Return a function that describes a resource and one that deletes it; both operations take equal arguments."""
    return _call(service, describe, by), _call(service, remove, by)


def _target(session: boto3.Session, name: str) -> dict[str, Any]:
    del session
    resource, dimension, namespace = name.split("|")
    return {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}


def _targets(session: boto3.Session, name: str) -> dict[str, Any]:
    arguments = _target(session, name)
    return {"ResourceIds": [arguments.pop("ResourceId")], **arguments}


def _schedules(session: boto3.Session, name: str) -> list[dict[str, str]]:
    """Return name and group of each schedule with this name, since a schedule's physical id lacks the group."""
    client: Any = session.client("scheduler")
    return [
        {"Name": one["Name"], "GroupName": one["GroupName"]}
        for page in client.get_paginator("list_schedules").paginate(NamePrefix=name)
        for one in page["Schedules"]
        if one["Name"] == name
    ]


def _delete_schedules(session: boto3.Session, name: str) -> None:
    for schedule in _schedules(session, name):
        session.client("scheduler").delete_schedule(**schedule)


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
    """Delete all objects of a bucket with their old versions, and abort its unfinished multipart uploads."""
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
BUDGET: Final = "AWS::Budgets::Budget"
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
        Kind("AWS::Scheduler::Schedule", None, _schedules, _delete_schedules),
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
            None,  # S3 has a gateway endpoint, which is free
            _call("ec2", "describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints"),
            _call("ec2", "delete_vpc_endpoints", "VpcEndpointIds"),
        ),
        Kind(BUDGET, None, *_both("budgets", "describe_budget", "delete_budget", _budget)),
        Kind("AWS::IAM::Role", None, _call("iam", "get_role", "RoleName"), _delete_role),
        Kind(BUCKET, "0.023 USD a GB and month", _call("s3", "head_bucket", "Bucket"), _delete_bucket),
    )
}

ORDER: Final = tuple(KINDS)
