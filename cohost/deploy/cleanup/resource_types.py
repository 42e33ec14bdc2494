"""The types of resources that a stack of this project creates: what each costs, whether one exists, and its removal.

The order of the table is the order of removal: what scales before what is scaled, what calls before what it calls.
`bills` is stated for resources that cost while nobody calls them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.archives.bucket import delete_objects
from cohost.errors import CleanupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import boto3


# SageMaker retries a failing start-up for an hour and more, and rejects every deletion meanwhile.
LIMIT_S = 2 * 60 * 60.0


@dataclass(frozen=True, kw_only=True)
class Patience:
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


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One type of resource, by its name in CloudFormation.

    `bills` is what it costs while it exists, None for nothing. `there` and `remove` take a session and the name;
    `there` may raise the service's error for a missing resource. `state` is the status of one that takes time to
    change.
    """

    type: str
    bills: str | None
    there: Callable[[boto3.Session, str], Any]
    remove: Callable[[boto3.Session, str], Any]
    state: Callable[[boto3.Session, str], str] | None = None

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


def wait_until_steady(session: boto3.Session, kind: Kind, name: str, patience: Patience) -> None:
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

    patience.until(f"{kind.type} {name}", transit)


def name_of(physical_id: str) -> str:
    """Return the name in a physical id: the last part, because SageMaker's ids are ARNs."""
    return physical_id.rpartition("/")[2] if physical_id.startswith("arn:aws:sagemaker:") else physical_id


def _simple(service: str, describe: str, remove: str, key: str) -> Mapping[str, Any]:
    """Return the calls of a resource type that one operation describes and another deletes, both by one argument."""

    def there(session: boto3.Session, name: str) -> Any:
        return getattr(_client(session, service), describe)(**{key: name})

    def gone(session: boto3.Session, name: str) -> None:
        getattr(_client(session, service), remove)(**{key: name})

    return {"there": there, "remove": gone}


def _state(operation: str, key: str, field: str) -> Callable[[boto3.Session, str], str]:
    return lambda session, name: str(getattr(_client(session, "sagemaker"), operation)(**{key: name})[field])


def _client(session: boto3.Session, service: str) -> Any:  # one of many services
    return session.client(service)  # type: ignore[call-overload]


def _scalable_target(session: boto3.Session, name: str) -> Any:
    resource, dimension, namespace = name.split("|")
    scaling = session.client("application-autoscaling")
    return scaling.describe_scalable_targets(
        ServiceNamespace=namespace,
        ResourceIds=[resource],
        ScalableDimension=dimension,
    )["ScalableTargets"]


def _deregister(session: boto3.Session, name: str) -> None:
    resource, dimension, namespace = name.split("|")
    session.client("application-autoscaling").deregister_scalable_target(
        ServiceNamespace=namespace,
        ResourceId=resource,
        ScalableDimension=dimension,
    )


def _schedule(session: boto3.Session, name: str) -> Any:
    return session.client("scheduler").get_schedule(**_schedule_key(name))


def _delete_schedule(session: boto3.Session, name: str) -> None:
    session.client("scheduler").delete_schedule(**_schedule_key(name))


def _schedule_key(name: str) -> dict[str, Any]:
    group, _, plain = name.rpartition("|")
    return {"Name": plain, **({"GroupName": group} if group else {})}


def _budget_key(session: boto3.Session, name: str) -> dict[str, Any]:
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

KINDS: Final[dict[str, Kind]] = {
    kind.type: kind
    for kind in (
        Kind(type="AWS::Scheduler::Schedule", bills=None, there=_schedule, remove=_delete_schedule),
        Kind(
            type="AWS::Scheduler::ScheduleGroup",
            bills=None,
            **_simple("scheduler", "get_schedule_group", "delete_schedule_group", "Name"),
        ),
        Kind(
            type="AWS::ApplicationAutoScaling::ScalableTarget", bills=None, there=_scalable_target, remove=_deregister
        ),
        Kind(
            type="AWS::CloudWatch::Alarm",
            bills="0.10 to 0.30 USD a month",
            there=lambda session, name: session.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"],
            remove=lambda session, name: session.client("cloudwatch").delete_alarms(AlarmNames=[name]),
        ),
        Kind(
            type="AWS::CloudWatch::Dashboard",
            bills="3 USD a month beyond the first three",
            there=lambda session, name: session.client("cloudwatch").get_dashboard(DashboardName=name),
            remove=lambda session, name: session.client("cloudwatch").delete_dashboards(DashboardNames=[name]),
        ),
        Kind(
            type=COMPONENT,
            bills="its copies keep instances running",
            state=_state("describe_inference_component", "InferenceComponentName", "InferenceComponentStatus"),
            **_simple(
                "sagemaker", "describe_inference_component", "delete_inference_component", "InferenceComponentName"
            ),
        ),
        Kind(
            type=ENDPOINT,
            bills="every hour, called or not",
            state=_state("describe_endpoint", "EndpointName", "EndpointStatus"),
            **_simple("sagemaker", "describe_endpoint", "delete_endpoint", "EndpointName"),
        ),
        Kind(
            type=CONFIG,
            bills=None,
            **_simple("sagemaker", "describe_endpoint_config", "delete_endpoint_config", "EndpointConfigName"),
        ),
        Kind(type=MODEL, bills=None, **_simple("sagemaker", "describe_model", "delete_model", "ModelName")),
        Kind(
            type="AWS::Lambda::Function",
            bills=None,
            **_simple("lambda", "get_function", "delete_function", "FunctionName"),
        ),
        Kind(type="AWS::SNS::Topic", bills=None, **_simple("sns", "get_topic_attributes", "delete_topic", "TopicArn")),
        Kind(
            type=LOG_GROUP,
            bills="0.03 USD a GB and month",
            there=_log_group,
            remove=lambda session, name: session.client("logs").delete_log_group(logGroupName=name),
        ),
        Kind(
            type="AWS::EC2::VPCEndpoint",
            bills=None,  # of the kind "gateway"
            there=lambda session, name: session.client("ec2").describe_vpc_endpoints(VpcEndpointIds=[name])[
                "VpcEndpoints"
            ],
            remove=lambda session, name: session.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[name]),
        ),
        Kind(
            type="AWS::Budgets::Budget",
            bills=None,
            there=lambda session, name: session.client("budgets").describe_budget(**_budget_key(session, name)),
            remove=lambda session, name: session.client("budgets").delete_budget(**_budget_key(session, name)),
        ),
        Kind(
            type="AWS::IAM::Role",
            bills=None,
            there=lambda session, name: session.client("iam").get_role(RoleName=name),
            remove=_delete_role,
        ),
        Kind(
            type=BUCKET,
            bills="0.023 USD a GB and month",
            there=lambda session, name: session.client("s3").head_bucket(Bucket=name),
            remove=_delete_bucket,
        ),
    )
}

ORDER: Final = tuple(KINDS)
