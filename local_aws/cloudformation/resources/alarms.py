"""AWS::CloudWatch::Alarm: `Ref` is the name, `Arn` an attribute (AWS: template reference of the type)."""

from __future__ import annotations

from typing import ClassVar, Final

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Outcome, Request, ResourceType, call, retag
from local_aws.settings import ACCOUNT_ID, PARTITION

NAME_LIMIT: Final = 255
TAGGING: Final = "list_tags_for_resource", "untag_resource", "tag_resource"


class Alarm(ResourceType):
    """An alarm on a metric or on metric math."""

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
    create_only: ClassVar[frozenset[str]] = frozenset({"AlarmName"})
    name_property: ClassVar[str | None] = "AlarmName"

    def create(self, request: Request) -> Outcome:
        """Put an alarm of a name that must be free; tags go along only then, as PutMetricAlarm has it.

        Raises:
            ResourceFailure: there is an alarm of that name, which CloudWatch itself would overwrite.
        """
        name = request.name("AlarmName", limit=NAME_LIMIT)
        if call(request.client("cloudwatch"), "describe_alarms", AlarmNames=[name])["MetricAlarms"]:
            raise ResourceFailure(f"{name} already exists: choose another AlarmName, or delete that alarm")
        return self._put(request, name, tags=request.tag_list())

    def update(self, request: Request) -> Outcome:
        """Put it anew: what the template leaves out is gone."""
        outcome = self._put(request, request.physical_id, tags=None)
        retag(request, "cloudwatch", TAGGING, ResourceARN=outcome.attributes["Arn"])
        return outcome

    def delete(self, request: Request) -> None:
        """Remove the alarm; CloudWatch does not mind one that is gone."""
        call(request.client("cloudwatch"), "delete_alarms", AlarmNames=[request.physical_id])

    def _put(self, request: Request, name: str, *, tags: list[dict[str, str]] | None) -> Outcome:
        given = {key: request.properties.get(key) for key in self.known - {"AlarmName", "Tags"}}
        call(request.client("cloudwatch"), "put_metric_alarm", AlarmName=name, Tags=tags or None, **given)
        arn = f"arn:{PARTITION}:cloudwatch:{request.region}:{ACCOUNT_ID}:alarm:{name}"
        return Outcome(physical_id=name, attributes={"Arn": arn})
