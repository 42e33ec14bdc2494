"""The expiry of an endpoint at the moment that the catalog states, or a stated length of time after the deploy."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

import cohost.archives
from cohost.deploy.expiry import COPIES_TO_ZERO, DELETE_ENDPOINT
from cohost.endpoint.copies import DIMENSION
from constructs_lib.acknowledgements import acknowledge
from constructs_lib.endpoints.hosted_endpoint import VARIANTS
from constructs_lib.endpoints.scale_to_zero import ScaleToZeroEndpoint
from constructs_lib.functions import add_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aws_cdk import aws_sns as sns

    from cohost.catalog.sections.lifecycle import Expiry
    from cohost.catalog.sections.scaling import Scaling
    from constructs_lib.endpoints.hosted_endpoint import HostedEndpoint


RESOURCE_TYPE: Final = "Custom::LmiEndOfLife"

_TIMEOUT: Final = cdk.Duration.minutes(1)
_SERVICE_TIMEOUT: Final = cdk.Duration.minutes(2)

# Only the files that the function imports, so that no other change of the folder changes the function.
_ASSET_ROOT: Final = Path(cohost.archives.__file__).parent.parent
_MODULES: Final = ("__init__", "end_of_life", "errors", "reply")
_ASSET_EXCLUDES: Final = ("*", "!archives", *(f"!archives/{module}.py" for module in _MODULES))


class EndOfLife(Construct):
    """A custom resource that computes the moment of the expiry from a length of time.

    A template cannot read a clock, and a moment computed at synth would change with each synth. The moment is set when
    the resource is created and when `minutes` changes; every other deploy leaves it unchanged.

    Args:
        minutes: the length of time from the deploy to the expiry.
        stated: the value of the catalog's `expires`, so that `cdk diff` shows it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, minutes: int, stated: str) -> None:
        super().__init__(scope, construct_id)
        self._resource = cdk.CustomResource(
            self,
            "Moment",
            resource_type=RESOURCE_TYPE,
            service_token=self._function().function_arn,
            service_timeout=_SERVICE_TIMEOUT,
            properties={"Expires": stated, "Minutes": minutes},
        )

    @property
    def at(self) -> str:
        """Return the moment of the expiry as `yyyy-mm-ddThh:mm:ss` in UTC."""
        return self._resource.get_att_string("At")

    @property
    def then_at(self) -> str:
        """Return the moment one minute after the expiry."""
        return self._resource.get_att_string("ThenAt")

    def _function(self) -> lambda_.Function:
        function, _ = add_function(
            self,
            description="Says at which moment the endpoint's time is over",
            code=lambda_.Code.from_asset(
                str(_ASSET_ROOT), exclude=list(_ASSET_EXCLUDES), ignore_mode=cdk.IgnoreMode.GIT
            ),
            handler="archives.end_of_life.on_event",
            timeout=_TIMEOUT,
        )
        return function


_THEN_SECONDS: Final = 60
_RETRY_SECONDS: Final = 24 * 3600
_RETRIES: Final = 185
_PERIOD: Final = cdk.Duration.minutes(5)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One API call that Scheduler makes at the expiry; `then` is True for a call one minute later."""

    construct_id: str
    arn: str
    parameters: str
    then: bool = False


class EndpointExpiry(Construct):
    """The schedules that end an endpoint and notify a topic, and an alarm for schedules that fail.

    With topology multi-model only the endpoint is deleted; its model, configuration, archives and bucket stay, so that
    `cohost expire` can create the endpoint again under its name. With topology scale-to-zero all copies are removed,
    and their instances with them. At the expiry the bounds are set to zero and scaling is suspended, so that neither a
    call nor a scheduled action starts a copy. One minute after the expiry the number of copies is set to zero.

    The schedules are in a schedule group of their own. `cohost expire` moves the schedules; CloudFormation leaves a
    moved schedule unchanged until its properties in the template change.

    Args:
        endpoint: the endpoint that ends.
        expiry: the moment of the end, or the length of time until then.
        stated: the value of the catalog's `expires`, for texts.
        topic: the SNS topic that receives the notifications.
        scaling: the scaling whose bounds `cohost expire` restores; None if the number of instances is fixed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint: HostedEndpoint,
        expiry: Expiry,
        stated: str,
        topic: sns.ITopic,
        scaling: Scaling | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._endpoint = endpoint
        self._scaling = scaling
        self._group = scheduler.CfnScheduleGroup(self, "Group")
        self._role = self._make_role()
        self._grant(topic)
        at, then_at = self._moments(expiry, stated)
        self._offsets: list[list[str | int]] = []
        for call in self._calls(topic, stated):
            schedule = self._schedule(call, then_at if call.then else at)
            self._offsets.append([schedule.ref, _THEN_SECONDS if call.then else 0])
        self._watch(topic)

    @property
    def facts(self) -> str:
        """Return the facts that `cohost expire` needs, as JSON for an output of the stack.

        `schedules` has each schedule's name and its delay after the expiry in seconds, `bounds` the minimum and the
        maximum of scaling.
        """
        facts: dict[str, Any] = {
            "action": DELETE_ENDPOINT,
            "group": self._group.ref,
            "schedules": self._offsets,
            "config": self._endpoint.endpoint_config_name,
        }
        if isinstance(self._endpoint, ScaleToZeroEndpoint):
            facts |= {"action": COPIES_TO_ZERO, "component": self._endpoint.component_name}
        if self._scaling is not None:
            facts["bounds"] = [self._scaling.min, self._scaling.max]
        return cdk.Stack.of(self).to_json_string(facts)

    def _moments(self, expiry: Expiry, stated: str) -> tuple[str, str]:
        """Return the moment of the expiry and one minute later, in Scheduler's format (for a duration, CDK tokens)."""
        if expiry.at is not None:
            return _text(expiry.at), _text(expiry.at, seconds=_THEN_SECONDS)
        if expiry.after is None:
            raise ValueError("an expiry has either a length or a moment")
        end = EndOfLife(self, "EndOfLife", minutes=round(expiry.after.total_seconds() / 60), stated=stated)
        return end.at, end.then_at

    def _calls(self, topic: sns.ITopic, stated: str) -> Iterator[_Call]:
        sdk = f"arn:{cdk.Stack.of(self).partition}:scheduler:::aws-sdk"
        name, stack = self._endpoint.endpoint_name, cdk.Stack.of(self).stack_name
        if isinstance(self._endpoint, ScaleToZeroEndpoint):
            component = self._endpoint.component_name
            bounds = {
                "ServiceNamespace": "sagemaker",
                "ResourceId": f"inference-component/{component}",
                "ScalableDimension": DIMENSION,
                "MinCapacity": 0,
                "MaxCapacity": 0,
                "SuspendedState": {"DynamicScalingOutSuspended": True, "ScheduledScalingSuspended": True},
            }
            copies = {"InferenceComponentName": component, "DesiredRuntimeConfig": {"CopyCount": 0}}
            register, update = "registerScalableTarget", "updateInferenceComponentRuntimeConfig"
            yield _Call(
                construct_id="Bounds", arn=f"{sdk}:applicationautoscaling:{register}", parameters=json.dumps(bounds)
            )
            yield _Call(
                construct_id="Copies", arn=f"{sdk}:sagemaker:{update}", parameters=json.dumps(copies), then=True
            )
            what = "goes down to no instance"
        else:
            parameters = json.dumps({"EndpointName": name})
            yield _Call(construct_id="End", arn=f"{sdk}:sagemaker:deleteEndpoint", parameters=parameters)
            what = "is being deleted; its archives, model and configuration stay"
        text = (
            f"Endpoint {name} of stack {stack} has reached its end (expires: {stated}) and {what}. "
            f"To have it back for eight hours: cohost expire 8h --stack {stack}"
        )
        yield _Call(construct_id="Notice", arn=topic.topic_arn, parameters=text)

    def _schedule(self, call: _Call, at: str) -> scheduler.CfnSchedule:
        schedule = scheduler.CfnSchedule(
            self,
            call.construct_id,
            group_name=self._group.ref,
            description=f"End of endpoint {self._endpoint.endpoint_name}; moved by `cohost expire`",
            schedule_expression=f"at({at})",
            schedule_expression_timezone="UTC",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=call.arn,
                role_arn=self._role.role_arn,
                input=call.parameters,
                # SageMaker refuses to delete an endpoint that is being updated, so the call is tried again for a day.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=_RETRY_SECONDS, maximum_retry_attempts=_RETRIES
                ),
            ),
        )
        schedule.node.add_dependency(self._role.node.find_child("DefaultPolicy"))
        return schedule

    def _watch(self, topic: sns.ITopic) -> None:
        """Add the alarm for schedules that fail: the endpoint then still bills, although a notice announced its end.

        Scheduler's documentation does not say which failed calls are repeated, so the alarm counts both failed attempts
        and calls that Scheduler has given up.
        """
        failed = {
            name: cloudwatch.Metric(
                namespace="AWS/Scheduler",
                metric_name=metric,
                dimensions_map={"ScheduleGroup": self._group.ref},
                statistic="Sum",
                period=_PERIOD,
            )
            for name, metric in (("refused", "TargetErrorCount"), ("dropped", "InvocationDroppedCount"))
        }
        stack = cdk.Stack.of(self).stack_name
        alarm = cloudwatch.Alarm(
            self,
            "Failed",
            alarm_description=(
                f"Endpoint {self._endpoint.endpoint_name}: a call at its end (expires) failed, so it may be there "
                f"still and bill; look with `cohost expire --stack {stack}`. What was refused because of an update is "
                "tried again for a day"
            ),
            metric=cloudwatch.MathExpression(
                expression="SUM([refused, dropped])", using_metrics=failed, label="Calls that failed", period=_PERIOD
            ),
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(topic))

    def _make_role(self) -> iam.Role:
        """Create a role for this group's schedules (AWS: EventBridge Scheduler, confused deputy prevention)."""
        conditions = {
            "StringEquals": {
                "aws:SourceAccount": cdk.Stack.of(self).account,
                "aws:SourceArn": self._group.attr_arn,
            }
        }
        principal = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions)
        return iam.Role(self, "Role", assumed_by=principal)

    def _grant(self, topic: sns.ITopic) -> None:
        self._allow("sns:Publish", topic.topic_arn)
        if (key := topic.master_key) is not None:
            # Each action by name, because the CDK's own grant would include kms:GenerateDataKey*.
            for action in ("kms:Decrypt", "kms:GenerateDataKey"):
                self._allow(action, key.key_arn)
        if not isinstance(self._endpoint, ScaleToZeroEndpoint):
            self._allow("sagemaker:DeleteEndpoint", self._endpoint.endpoint_arn)
            if self._endpoint.scaled:
                # Without this right SageMaker refuses to delete a scaled endpoint (developer guide, "Delete endpoints
                # configured for auto scaling").
                self._allow_scaling("DeregisterScalableTarget", VARIANTS)
            return
        on_component = ("sagemaker:UpdateInferenceComponentRuntimeConfig", "sagemaker:DescribeInferenceComponent")
        for action in on_component:
            self._allow(action, self._endpoint.component_arn)
        self._allow_scaling("RegisterScalableTarget", DIMENSION)

    def _allow_scaling(self, action: str, dimension: str) -> None:
        """Allow an action of Application Auto Scaling on SageMaker resources with one scalable dimension."""
        stack = cdk.Stack.of(self)
        target = stack.format_arn(service="application-autoscaling", resource="scalable-target", resource_name="*")
        of_kind = {
            "application-autoscaling:service-namespace": "sagemaker",
            "application-autoscaling:scalable-dimension": dimension,
        }
        self._role.add_to_policy(
            iam.PolicyStatement(
                actions=[f"application-autoscaling:{action}"],
                resources=[target],
                conditions={"StringEquals": of_kind},
            )
        )
        account = "<AWS::AccountId>" if cdk.Token.is_unresolved(stack.account) else stack.account
        acknowledge(
            self._role,
            "AwsSolutions-IAM5",
            finding=(
                f"Resource::arn:{stack.partition}:application-autoscaling:{stack.region}:{account}:scalable-target/*"
            ),
            reason="The service makes up a target's id; conditions leave one kind of SageMaker's resources.",
        )

    def _allow(self, action: str, resource_arn: str) -> None:
        self._role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource_arn]))


def _text(moment: dt.datetime, *, seconds: int = 0) -> str:
    return f"{moment + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
