"""Resource types of CloudWatch, CloudWatch Logs, SNS and Budgets, such as alarms, log groups, topics and budgets."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
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
from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.kit.filter_patterns import parse_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping


ALARM_NAME_LIMIT: Final = 255
TAGGING: Final = "list_tags_for_resource", "untag_resource", "tag_resource"


class Alarm(ResourceType):
    """AWS::CloudWatch::Alarm, an alarm on a metric or on metric math."""

    type: ClassVar[str] = "AWS::CloudWatch::Alarm"
    known: ClassVar[frozenset[str]] = frozenset(
        {
            "ActionsEnabled", "AlarmActions", "AlarmDescription", "AlarmName", "ComparisonOperator",
            "DatapointsToAlarm", "Dimensions", "EvaluateLowSampleCountPercentile", "EvaluationPeriods",
            "ExtendedStatistic", "InsufficientDataActions", "MetricName", "Metrics", "Namespace", "OKActions", "Period",
            "Statistic", "Tags", "Threshold", "ThresholdMetricId", "TreatMissingData", "Unit",
        }
    )  # fmt: skip
    required: ClassVar[frozenset[str]] = frozenset({"ComparisonOperator", "EvaluationPeriods"})
    name_property: ClassVar[str | None] = "AlarmName"

    def create(self, request: Request) -> Outcome:
        """Create an alarm with its tags, since PutMetricAlarm accepts tags only for a new alarm.

        Raises:
            ResourceFailure: an alarm of the same name exists, which CloudWatch itself would overwrite.
        """
        name = request.name("AlarmName", limit=ALARM_NAME_LIMIT)
        if call(request.client("cloudwatch"), "describe_alarms", AlarmNames=[name])["MetricAlarms"]:
            raise ResourceFailure(f"{name} already exists: choose another AlarmName, or delete that alarm")
        return self._put(request, name, tags=request.tag_list())

    def update(self, request: Request) -> Outcome:
        """Overwrite the alarm and its tags; remove properties that the template no longer has."""
        outcome = self._put(request, request.physical_id, tags=None)
        retag(request, "cloudwatch", TAGGING, ResourceARN=outcome.attributes["Arn"])
        return outcome

    def delete(self, request: Request) -> None:
        """Delete the alarm; CloudWatch raises no error if the alarm does not exist."""
        call(request.client("cloudwatch"), "delete_alarms", AlarmNames=[request.physical_id])

    def _put(self, request: Request, name: str, *, tags: list[dict[str, str]] | None) -> Outcome:
        given = {key: request.properties.get(key) for key in self.known - {"AlarmName", "Tags"}}
        call(request.client("cloudwatch"), "put_metric_alarm", AlarmName=name, Tags=tags or None, **given)
        arn = f"arn:{PARTITION}:cloudwatch:{request.region}:{ACCOUNT_ID}:alarm:{name}"
        return Outcome(physical_id=name, attributes={"Arn": arn})


DASHBOARD_NAME_LIMIT: Final = 255


class Dashboard(ResourceType):
    """AWS::CloudWatch::Dashboard; `Ref` is the dashboard's name."""

    type: ClassVar[str] = "AWS::CloudWatch::Dashboard"
    known: ClassVar[frozenset[str]] = frozenset({"DashboardBody", "DashboardName", "Tags"})
    name_property: ClassVar[str | None] = "DashboardName"

    def create(self, request: Request) -> Outcome:
        """Put the dashboard."""
        return self._put(request, request.name("DashboardName", limit=DASHBOARD_NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Overwrite the dashboard's body."""
        return self._put(request, request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the dashboard."""
        call_if_there(request.client("cloudwatch"), "delete_dashboards", DashboardNames=[request.physical_id])

    @staticmethod
    def _put(request: Request, name: str) -> Outcome:
        body = policy_text(request.properties["DashboardBody"])
        _check(body)
        tags = request.tag_list() or None
        call(request.client("cloudwatch"), "put_dashboard", DashboardName=name, DashboardBody=body, Tags=tags)
        return Outcome(physical_id=name)


def _check(body: str) -> None:
    """Reject a dashboard body that CloudWatch would reject, since moto accepts any text as a body.

    Source: AWS, "Dashboard Body Structure and Syntax".

    Raises:
        ResourceFailure: the body is not a JSON object with a list of widgets that each have a type and properties.
    """
    try:
        widgets = json.loads(body)["widgets"]
        wrong = [widget for widget in widgets if not {"type", "properties"} <= set(widget)]
    except (ValueError, KeyError, TypeError) as error:
        raise ResourceFailure(f"DashboardBody is no dashboard: {error!r}") from error
    if wrong:
        raise ResourceFailure(f"DashboardBody has a widget without type or properties: {json.dumps(wrong[0])[:200]}")


LOG_GROUP_NAME_LIMIT: Final = 512
METRIC_FILTER_NAME_LIMIT: Final = 512


class LogGroup(ResourceType):
    """AWS::Logs::LogGroup, a log group with its retention."""

    type: ClassVar[str] = "AWS::Logs::LogGroup"
    known: ClassVar[frozenset[str]] = frozenset({"KmsKeyId", "LogGroupName", "RetentionInDays", "Tags"})
    name_property: ClassVar[str | None] = "LogGroupName"

    def create(self, request: Request) -> Outcome:
        """Create the log group and set its retention; fail if a log group of this name exists."""
        name = request.name("LogGroupName", limit=LOG_GROUP_NAME_LIMIT)
        call(
            request.client("logs"),
            "create_log_group",
            logGroupName=name,
            kmsKeyId=request.properties.get("KmsKeyId"),
            tags=request.all_tags() or None,
        )
        request.initiated(name)
        _set_retention(request, name)
        return _outcome(name, request.region)

    def update(self, request: Request) -> Outcome:
        """Change retention and tags of the log group."""
        _set_retention(request, request.physical_id)
        tags = request.all_tags()
        if tags:
            # The ARN of a log group that takes tags lacks the end `:*` (API reference: TagResource).
            arn = str(_outcome(request.physical_id, request.region).attributes["Arn"]).removesuffix(":*")
            call(request.client("logs"), "tag_resource", resourceArn=arn, tags=tags)
        return _outcome(request.physical_id, request.region)

    def delete(self, request: Request) -> None:
        """Remove the log group with its log streams."""
        call_if_there(request.client("logs"), "delete_log_group", logGroupName=request.physical_id)


class MetricFilter(ResourceType):
    """AWS::Logs::MetricFilter, which makes metric values from the lines of a log group."""

    type: ClassVar[str] = "AWS::Logs::MetricFilter"
    known: ClassVar[frozenset[str]] = frozenset(
        {"FilterName", "FilterPattern", "LogGroupName", "MetricTransformations"}
    )
    required: ClassVar[frozenset[str]] = frozenset({"FilterPattern", "LogGroupName", "MetricTransformations"})
    name_property: ClassVar[str | None] = "FilterName"

    def create(self, request: Request) -> Outcome:
        """Put the filter on its log group.

        Raises:
            ResourceFailure: the emulation does not evaluate a pattern of this kind.
        """
        return self._put(request, request.name("FilterName", limit=METRIC_FILTER_NAME_LIMIT))

    def update(self, request: Request) -> Outcome:
        """Overwrite the filter: delete the old one first, since moto would keep both under one name."""
        self._remove(request, request.own_client("logs"))
        return self._put(request, request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the filter."""
        self._remove(request, request.client("logs"))

    @staticmethod
    def _remove(request: Request, client: Any) -> None:  # a boto3 client
        group = request.properties["LogGroupName"]
        call_if_there(client, "delete_metric_filter", logGroupName=group, filterName=request.physical_id)

    def _put(self, request: Request, name: str) -> Outcome:
        pattern = request.properties["FilterPattern"]
        try:
            parse_pattern(pattern)
        except ValueError as error:
            raise ResourceFailure(f"FilterPattern: {error}") from error
        call(
            request.client("logs"),
            "put_metric_filter",
            logGroupName=request.properties["LogGroupName"],
            filterName=name,
            filterPattern=pattern,
            metricTransformations=[_transformation(one) for one in request.properties["MetricTransformations"]],
        )
        return Outcome(physical_id=name)


def _transformation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a template's metric transformation to the form of PutMetricFilter, where the dimensions are a map."""
    found = {f"{key[0].lower()}{key[1:]}": value for key, value in given.items()}
    if "dimensions" in found:
        found["dimensions"] = {one["Key"]: one["Value"] for one in found["dimensions"]}
    return found


def _set_retention(request: Request, name: str) -> None:
    days = request.properties.get("RetentionInDays")
    if days is not None:
        call(request.client("logs"), "put_retention_policy", logGroupName=name, retentionInDays=days)
    elif request.changed("RetentionInDays"):
        call_if_there(request.client("logs"), "delete_retention_policy", logGroupName=name)


def _outcome(name: str, region: str) -> Outcome:
    return Outcome(
        physical_id=name, attributes={"Arn": f"arn:{PARTITION}:logs:{region}:{ACCOUNT_ID}:log-group:{name}:*"}
    )


TOPIC_NAME_LIMIT: Final = 256
_TOPIC_ATTRIBUTES: Final = ("DisplayName", "KmsMasterKeyId", "SignatureVersion")
_SUBSCRIPTION_ATTRIBUTES: Final = ("FilterPolicy", "FilterPolicyScope", "RawMessageDelivery", "RedrivePolicy")


class Topic(ResourceType):
    """AWS::SNS::Topic; `Ref` is the topic's ARN."""

    type: ClassVar[str] = "AWS::SNS::Topic"
    known: ClassVar[frozenset[str]] = frozenset({*_TOPIC_ATTRIBUTES, "Tags", "TopicName"})
    name_property: ClassVar[str | None] = "TopicName"

    def create(self, request: Request) -> Outcome:
        """Make the topic."""
        name = request.name("TopicName", limit=TOPIC_NAME_LIMIT)
        stated = {key: request.properties[key] for key in _TOPIC_ATTRIBUTES if key in request.properties}
        answer = call(
            request.client("sns"),
            "create_topic",
            Name=name,
            Attributes={key: str(value) for key, value in stated.items()} or None,
            Tags=request.tag_list() or None,
        )
        return _topic(answer["TopicArn"])

    def update(self, request: Request) -> Outcome:
        """Change attributes and tags of the topic."""
        client, arn = request.client("sns"), request.physical_id
        for key in _TOPIC_ATTRIBUTES:
            if request.changed(key):
                value = str(request.properties.get(key, ""))
                call(client, "set_topic_attributes", TopicArn=arn, AttributeName=key, AttributeValue=value)
        if request.tag_list():
            call(client, "tag_resource", ResourceArn=arn, Tags=request.tag_list())
        return _topic(arn)

    def delete(self, request: Request) -> None:
        """Remove the topic with its subscriptions."""
        call_if_there(request.client("sns"), "delete_topic", TopicArn=request.physical_id)


class TopicPolicy(ResourceType):
    """AWS::SNS::TopicPolicy, the access policy of topics. A topic whose policy is removed gets the default policy."""

    type: ClassVar[str] = "AWS::SNS::TopicPolicy"
    known: ClassVar[frozenset[str]] = frozenset({"PolicyDocument", "Topics"})

    def create(self, request: Request) -> Outcome:
        """Put the policy on each topic."""
        self._put(request)
        name = physical_name(request.stack_name, request.logical_id, limit=TOPIC_NAME_LIMIT)
        return Outcome(physical_id=name, attributes={"Id": name})

    def update(self, request: Request) -> Outcome:
        """Put the changed policy on each topic, and remove it from topics that the template no longer names."""
        self._put(request)
        _reset_policies(request, set(request.old_properties["Topics"]) - set(request.properties["Topics"]))
        return Outcome(physical_id=request.physical_id, attributes={"Id": request.physical_id})

    def delete(self, request: Request) -> None:
        """Remove the policy from each topic that still exists."""
        _reset_policies(request, set(request.properties["Topics"]))

    @staticmethod
    def _put(request: Request) -> None:
        policy = policy_text(request.properties["PolicyDocument"])
        for arn in request.properties["Topics"]:
            _set_policy(request, arn, policy)


class Subscription(ResourceType):
    """AWS::SNS::Subscription; `Ref` is its ARN. AWS needs a confirmation from an e-mail address, moto does not."""

    type: ClassVar[str] = "AWS::SNS::Subscription"
    known: ClassVar[frozenset[str]] = frozenset({*_SUBSCRIPTION_ATTRIBUTES, "Endpoint", "Protocol", "TopicArn"})

    def create(self, request: Request) -> Outcome:
        """Subscribe the endpoint to the topic."""
        properties = request.properties
        answer = call(
            request.client("sns"),
            "subscribe",
            TopicArn=properties["TopicArn"],
            Protocol=properties["Protocol"],
            Endpoint=properties.get("Endpoint"),
            Attributes=_subscription_attributes(properties) or None,
            ReturnSubscriptionArn=True,
        )
        return Outcome(physical_id=answer["SubscriptionArn"], attributes={"Arn": answer["SubscriptionArn"]})

    def update(self, request: Request) -> Outcome:
        """Change the subscription's filter policy, raw message delivery and dead-letter queue."""
        client, arn = request.client("sns"), request.physical_id
        for key, value in _subscription_attributes(request.properties).items():
            call(client, "set_subscription_attributes", SubscriptionArn=arn, AttributeName=key, AttributeValue=value)
        return Outcome(physical_id=arn, attributes={"Arn": arn})

    def delete(self, request: Request) -> None:
        """Remove the subscription."""
        call_if_there(request.client("sns"), "unsubscribe", SubscriptionArn=request.physical_id)


def _topic(arn: str) -> Outcome:
    return Outcome(physical_id=arn, attributes={"TopicArn": arn, "TopicName": arn.rpartition(":")[2]})


def _reset_policies(request: Request, arns: set[str]) -> None:
    for arn in arns:
        account = arn.split(":")[4]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["SNS:Publish", "SNS:Subscribe", "SNS:GetTopicAttributes"],
            "Resource": arn,
            "Condition": {"StringEquals": {"AWS:SourceOwner": account}},
        }
        _set_policy(request, arn, json.dumps({"Version": "2008-10-17", "Statement": [statement]}))


def _set_policy(request: Request, arn: str, policy: str) -> None:
    call_if_there(
        request.client("sns"), "set_topic_attributes", TopicArn=arn, AttributeName="Policy", AttributeValue=policy
    )


def _subscription_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    stated = {key: properties[key] for key in _SUBSCRIPTION_ATTRIBUTES if key in properties}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in stated.items()}


BUDGET_NAME_LIMIT: Final = 100


class Budget(ResourceType):
    """AWS::Budgets::Budget; `Ref` is a generated Id, not the name. The emulator costs nothing, so no alert is sent."""

    type: ClassVar[str] = "AWS::Budgets::Budget"
    known: ClassVar[frozenset[str]] = frozenset({"Budget", "NotificationsWithSubscribers", "ResourceTags"})

    def create(self, request: Request) -> Outcome:
        """Make the budget. `Ref` gives the schema's read-only Id, so a template must not rely on the Id's form."""
        stated = request.properties["Budget"].get("BudgetName")
        name = stated or physical_name(request.stack_name, request.logical_id, limit=BUDGET_NAME_LIMIT)
        return self._create(request, str(name), str(uuid.uuid4()))

    def update(self, request: Request) -> Outcome:
        """Delete the budget and create it again under its name, since moto has no UpdateBudget."""
        name = str(request.attributes["BudgetName"])
        call_if_there(request.client("budgets"), "delete_budget", AccountId=ACCOUNT_ID, BudgetName=name)
        return self._create(request, name, request.physical_id)

    def delete(self, request: Request) -> None:
        """Remove the budget."""
        name = str(request.attributes["BudgetName"])
        call_if_there(request.client("budgets"), "delete_budget", AccountId=ACCOUNT_ID, BudgetName=name)

    @staticmethod
    def _create(request: Request, name: str, budget_id: str) -> Outcome:
        properties = request.properties
        call(
            request.client("budgets"),
            "create_budget",
            AccountId=ACCOUNT_ID,
            Budget={**properties["Budget"], "BudgetName": name},
            NotificationsWithSubscribers=properties.get("NotificationsWithSubscribers"),
        )
        return Outcome(physical_id=budget_id, attributes={"Id": budget_id, "BudgetName": name})
