"""A stage for tests of scaling: CloudWatch alarms and Application Auto Scaling on a clock that the test advances.

The services that these two call (SNS, SageMaker, and CloudWatch's API) are fakes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from local_aws.autoscaling.operations import TargetOperations
from local_aws.autoscaling.policies import Policies
from local_aws.autoscaling.scaling_activities import Scaler
from local_aws.autoscaling.scheduled_actions import ScheduledActions
from local_aws.autoscaling.state import ScalableTargets
from local_aws.cloudwatch.evaluation import AlarmEvaluator
from local_aws.cloudwatch.metric_store import MetricStore
from local_aws.kit.account import Account
from local_aws.kit.background import BackgroundTasks
from local_aws.kit.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The start time is a full minute, so that an alarm's period begins when a test does.
START = 1_800_000_000.0
COMPONENT = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/c",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
VARIANT = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/v",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
OF_COMPONENT = (("InferenceComponentName", "c"),)
OF_VARIANT = (("EndpointName", "e"), ("VariantName", "v"))
CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
REFUSALS = "NoCapacityInvocationFailures"


def refusal(message: str) -> ClientError:
    """Make the ClientError that boto3 raises for a call that a service rejects."""
    answer: Any = {"Error": {"Code": "ValidationException", "Message": message}}
    return ClientError(answer, "x")


@dataclass
class Services:
    """Fakes of CloudWatch, SNS, SageMaker and of `ServiceClients`, which returns these fakes as clients; no call waits.

    Args:
        count: the capacity (copies or instances) of the one scalable resource.
        asked: the requested capacities that SageMaker accepted, in order.
        busy: True if SageMaker rejects changes.
        slow: True if changes never end.
        stuck: the reason why no change reaches its capacity; None if changes succeed.
        alarms: CloudWatch's alarms by name.
        states: pairs of an alarm's name and the state that was set, in order.
        published: the messages that were published to SNS topics.
    """

    count: int = 1
    asked: list[int] = field(default_factory=list)
    busy: bool = False
    slow: bool = False
    stuck: str | None = None
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: list[tuple[str, str]] = field(default_factory=list)
    published: list[dict[str, Any]] = field(default_factory=list)

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call in the calling thread; the real `ServiceClients.run` would use another thread."""
        return function(*arguments)

    def cloudwatch(self) -> Any:
        """Return this object, which has the methods of all fake clients."""
        return self

    sagemaker = sns = cloudwatch

    def get_paginator(self, _: str) -> Any:
        """Return this object as the paginator of DescribeAlarms."""
        return self

    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        """Yield one page with all alarms."""
        yield {"MetricAlarms": [dict(alarm) for alarm in self.alarms.values()]}

    def put_metric_alarm(self, **alarm: Any) -> None:
        """Store an alarm as moto does, with the initial state OK."""
        fresh = {"StateValue": "OK", "StateReason": "Unchecked: Initial alarm creation", "AlarmArn": "arn"}
        self.alarms[alarm["AlarmName"]] = {**alarm, **fresh}

    def delete_alarms(self, *, AlarmNames: list[str]) -> None:  # noqa: N803 - boto3's name
        """Delete alarms by name."""
        for name in AlarmNames:
            self.alarms.pop(name, None)

    def set_alarm_state(self, **state: str) -> None:
        """Set the state of an alarm; raise `refusal` if the alarm does not exist."""
        if state["AlarmName"] not in self.alarms:
            raise refusal("no alarm")
        self.alarms[state["AlarmName"]].update(StateValue=state["StateValue"], StateReason=state["StateReason"])
        self.states.append((state["AlarmName"], state["StateValue"]))

    def publish(self, **message: Any) -> None:
        """Store a message that was published to an SNS topic."""
        self.published.append(message)

    def describe_inference_component(self, **_: str) -> dict[str, Any]:
        """Describe the inference component whose copies are scaled."""
        status = "Updating" if self.slow and self.asked else "InService"
        failure = {} if self.stuck is None else {"FailureReason": self.stuck}
        copies = {"DesiredCopyCount": self.count, "CurrentCopyCount": self.count}
        return {"InferenceComponentStatus": status, "RuntimeConfig": copies, **failure}

    def describe_endpoint(self, **_: str) -> dict[str, Any]:
        """Describe the endpoint of the variant whose instances are scaled."""
        variant = {"VariantName": "v", "CurrentInstanceCount": self.count}
        return {"EndpointStatus": "InService", "ProductionVariants": [variant]}

    def update_inference_component_runtime_config(self, **request: Any) -> None:
        """Change the number of copies of the inference component."""
        self._change(request["DesiredRuntimeConfig"]["CopyCount"])

    def update_endpoint_weights_and_capacities(self, **request: Any) -> None:
        """Change the number of instances of the variant."""
        self._change(request["DesiredWeightsAndCapacities"][0]["DesiredInstanceCount"])

    def _change(self, count: int) -> None:
        if self.busy:
            raise refusal("Cannot update it while it is in state UPDATE_IN_PROGRESS.")
        self.asked.append(count)
        if self.stuck is None:
            self.count = count


class Stage:
    """The emulated CloudWatch alarms and Application Auto Scaling, both with the same clock.

    Attributes:
        services: the fakes of the other services.
        machine: the clock's time in seconds, for tests to move.
        metrics: CloudWatch's store of metric values.
        targets: the scalable targets of Application Auto Scaling.
        alarms: the evaluator of CloudWatch's alarms.
        operations: Application Auto Scaling's operations on targets and policies.
        scheduled: Application Auto Scaling's scheduled actions.
    """

    def __init__(self, count: int = 1) -> None:
        self.services = Services(count=count)
        self.machine = START
        self.clock = Clock(machine=lambda: self.machine)
        self.metrics = MetricStore(self.clock)
        account = Account(account_id="123456789012", region="us-east-1")
        self.targets = ScalableTargets()
        self._tasks = BackgroundTasks()
        clients: Any = self.services
        scaler = Scaler(self.targets, clients, self._tasks, lambda: None)
        self.alarms = AlarmEvaluator(self.metrics, self.clock, account, clients, lambda: None)
        self._policies = Policies(self.targets, self.alarms.in_alarm, scaler, self.clock)
        self.operations = TargetOperations(account, self.targets, scaler, clients)
        self.scheduled = ScheduledActions(account, self.targets, scaler, self.clock, lambda: None)

    def record(self, name: str, value: float, dimensions: tuple[tuple[str, str], ...] = OF_COMPONENT) -> None:
        """Record a high-resolution value of a metric in the namespace AWS/SageMaker."""
        self.metrics.record(("AWS/SageMaker", name, dimensions), "Count", value, fine=True)

    async def alarm(self, **alarm: Any) -> None:
        """Put alarm `a`: the maximum of metric `m` in one period of 60 s is at least 1; `alarm` overrides members."""
        plain = {
            "AlarmName": "a",
            "Namespace": "AWS/SageMaker",
            "MetricName": "m",
            "Dimensions": [{"Name": name, "Value": value} for name, value in OF_COMPONENT],
            "Statistic": "Maximum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1.0,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        }
        self.services.put_metric_alarm(**{**plain, **alarm})
        self.alarms.mark_changed()
        await self.alarms.refresh()

    async def work(self) -> None:
        """Do once what the real services do repeatedly: evaluate alarms, run scheduled actions, apply policies."""
        await self.alarms.refresh()
        triggers = await self.alarms.evaluate()
        self.scheduled.run_due()
        await self._policies.act(triggers)
        # Background tasks need a few turns of the event loop.
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: int, every: Callable[[], None] = lambda: None) -> None:
        """Advance the clock in steps of 10 s; call `every` in the middle of each step, and `work` after it."""
        for _ in range(0, seconds, 10):
            self.machine += 5
            every()
            self.machine += 5
            await self.work()

    async def close(self) -> None:
        """Cancel all background tasks of the stage."""
        await self._tasks.give_up()


def played(scene: Callable[[Stage], Any], count: int = 1) -> Stage:
    """Run the coroutine function `scene` with a new stage whose resource has the capacity `count`; return the stage."""

    async def whole() -> Stage:
        stage = Stage(count)
        await scene(stage)
        await stage.close()
        return stage

    return asyncio.run(whole())


async def register(stage: Stage, minimum: int = 0, maximum: int = 4, whose: dict[str, str] = COMPONENT) -> None:
    """Register a resource, given by its ResourceId `whose`, as a scalable target."""
    await stage.operations.register({**whose, "MinCapacity": minimum, "MaxCapacity": maximum})


async def track(stage: Stage, metric: str = CONCURRENCY, whose: dict[str, str] = COMPONENT, **more: Any) -> Any:
    """Put a target tracking policy that keeps a metric at 5; return the answer of PutScalingPolicy."""
    configuration = {
        "TargetValue": 5.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
        "ScaleOutCooldown": 60,
        "ScaleInCooldown": 60,
        **more,
    }
    answer = await stage.operations.put_policy(
        {
            **whose,
            "PolicyName": "track",
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": configuration,
        }
    )
    stage.alarms.mark_changed()
    await stage.work()
    return answer


async def wake(stage: Stage, adjustment: int = 1, kind: str = "ChangeInCapacity", **alarm: Any) -> None:
    """Put a step scaling policy that an alarm on the metric NoCapacityInvocationFailures triggers."""
    answer = await stage.operations.put_policy(
        {
            **COMPONENT,
            "PolicyName": "wake",
            "PolicyType": "StepScaling",
            "StepScalingPolicyConfiguration": {
                "AdjustmentType": kind,
                "MetricAggregationType": "Maximum",
                "Cooldown": 60,
                "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": adjustment}],
            },
        }
    )
    await stage.alarm(AlarmName="w", MetricName=REFUSALS, AlarmActions=[answer["PolicyARN"]], **alarm)
