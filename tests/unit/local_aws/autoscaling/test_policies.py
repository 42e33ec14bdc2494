"""Scaling policies on a clock that the test moves."""

from __future__ import annotations

from local_aws.testing.scaling_stage import (
    COMPONENT,
    OF_VARIANT,
    REFUSALS,
    VARIANT,
    Stage,
    played,
    register,
    track,
    wake,
)


def test_an_idle_component_goes_to_zero_and_a_refused_call_wakes_it() -> None:
    """Fifteen idle minutes end the copy, and a rejected call starts exactly one."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await track(stage)
        await wake(stage)
        await stage.pass_time(890, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == []
        await stage.pass_time(20, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0]
        await stage.pass_time(120)
        stage.record(REFUSALS, 1)
        await stage.pass_time(60)
        assert stage.services.asked == [0, 1]
        await stage.pass_time(180)
        assert stage.alarms.state("w") == "INSUFFICIENT_DATA"
        assert stage.services.asked == [0, 1]

    stage = played(scene)
    newest = stage.targets.activities[0]
    assert newest.description == "Setting desired copy count to 1."
    assert newest.cause == "monitor alarm w in state ALARM triggered policy wake"
    assert newest.status == "Successful"


def test_a_copy_that_was_woken_early_is_not_put_to_sleep_for_what_was_before() -> None:
    """A woken copy gets a full idle time, because values before the gap do not count."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await track(stage)
        await stage.pass_time(910, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0]
        await stage.pass_time(120)
        stage.services.count = 1
        await stage.pass_time(870, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0]
        await stage.pass_time(60, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0, 0]

    played(scene)


def test_a_copy_that_a_call_has_just_woken_keeps_awake_for_its_idle_time() -> None:
    """A copy that a call has woken stays for its idle time, even if it was at zero only shortly."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await wake(stage, Period=10)
        step = {
            "AdjustmentType": "ExactCapacity",
            "StepAdjustments": [{"MetricIntervalUpperBound": 0.0, "ScalingAdjustment": 0}],
        }
        answer = await stage.operations.put_policy(
            {**COMPONENT, "PolicyName": "idle", "PolicyType": "StepScaling", "StepScalingPolicyConfiguration": step}
        )
        await stage.alarm(
            AlarmName="i",
            MetricName="ConcurrentRequestsPerCopy",
            AlarmActions=[answer["PolicyARN"]],
            EvaluationPeriods=5,
            Threshold=0.0,
            ComparisonOperator="LessThanOrEqualToThreshold",
            TreatMissingData="notBreaching",
        )
        await stage.pass_time(300, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0]
        stage.record(REFUSALS, 1)
        await stage.pass_time(290, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0, 1]
        await stage.pass_time(80, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [0, 1, 0]

    played(scene)


def test_growth_is_in_proportion_to_the_load_and_within_the_bounds() -> None:
    """12 concurrent calls with a target of 5 give 3 copies, up to the maximum."""

    async def scene(stage: Stage) -> None:
        await register(stage, maximum=4)
        await track(stage)
        await stage.pass_time(30, lambda: stage.record("ConcurrentRequestsPerCopy", 12))
        assert stage.services.asked == [3]
        await stage.pass_time(600, lambda: stage.record("ConcurrentRequestsPerCopy", 50))
        assert stage.services.asked == [3, 4]

    played(scene)


def test_during_the_cooldown_what_was_added_counts() -> None:
    """During the cooldown the same load adds no capacity, and a larger load adds only the difference."""

    async def scene(stage: Stage) -> None:
        await register(stage, maximum=20)
        await track(stage, ScaleOutCooldown=600)
        await stage.pass_time(30, lambda: stage.record("ConcurrentRequestsPerCopy", 12))
        await stage.pass_time(120, lambda: stage.record("ConcurrentRequestsPerCopy", 12))
        assert stage.services.asked == [3]
        await stage.pass_time(60, lambda: stage.record("ConcurrentRequestsPerCopy", 24))
        assert stage.services.asked == [3, 5]

    played(scene)


def test_shrinking_waits_for_its_cooldown() -> None:
    """Of four idle copies the first scale-in is at once, and the next after the cooldown at the earliest."""

    async def scene(stage: Stage) -> None:
        await register(stage, minimum=0)
        await track(stage, ScaleInCooldown=300)
        await stage.pass_time(910, lambda: stage.record("ConcurrentRequestsPerCopy", 3))
        assert stage.services.asked == [3]
        await stage.pass_time(240, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [3]
        await stage.pass_time(120, lambda: stage.record("ConcurrentRequestsPerCopy", 0))
        assert stage.services.asked == [3, 0]

    played(scene, count=4)


def test_scaling_in_can_be_switched_off() -> None:
    """DisableScaleIn of a policy, or SuspendedState of the target, prevents a scale-in."""

    async def disabled(stage: Stage) -> None:
        await register(stage)
        await track(stage, DisableScaleIn=True)
        await stage.pass_time(1000, lambda: stage.record("ConcurrentRequestsPerCopy", 0))

    async def suspended(stage: Stage) -> None:
        await stage.operations.register(
            {
                **COMPONENT,
                "MinCapacity": 0,
                "MaxCapacity": 1,
                "SuspendedState": {"DynamicScalingInSuspended": True},
            }
        )
        await track(stage)
        await stage.pass_time(1000, lambda: stage.record("ConcurrentRequestsPerCopy", 0))

    assert played(disabled).services.asked == played(suspended).services.asked == []


def test_instances_follow_calls_and_stay_when_there_are_none_at_all() -> None:
    """Instances follow the calls, and stay without calls, because SageMaker then sends no values."""
    metric = "SageMakerVariantInvocationsPerInstance"

    async def scene(stage: Stage) -> None:
        await register(stage, minimum=1, whose=VARIANT)
        await track(stage, metric, whose=VARIANT)
        await stage.pass_time(180, lambda: stage.record("InvocationsPerInstance", 1.5, OF_VARIANT))
        assert stage.services.asked == [2]
        await stage.pass_time(1200)
        assert stage.services.asked == [2]
        calls = [1.0] + [0.0] * 5

        def few() -> None:
            calls.append(calls.pop(0))
            if calls[0]:
                stage.record("InvocationsPerInstance", 1, OF_VARIANT)

        await stage.pass_time(1200, few)
        assert stage.services.asked == [2, 1]

    played(scene)


def test_a_customised_metric_is_tracked() -> None:
    """Target tracking works with a customised metric and its statistic."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        custom = {
            "Namespace": "AWS/SageMaker",
            "MetricName": "m",
            "Dimensions": [{"Name": "InferenceComponentName", "Value": "c"}],
            "Statistic": "Average",
        }
        await track(stage, PredefinedMetricSpecification=None, CustomizedMetricSpecification=custom)
        await stage.pass_time(180, lambda: stage.record("m", 10))

    assert played(scene).services.asked == [2]


def test_of_several_policies_the_largest_capacity_wins() -> None:
    """If several policies act, the largest capacity is used."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await track(stage)
        await wake(stage, adjustment=3, Period=10)
        stage.record(REFUSALS, 1)
        await stage.pass_time(30, lambda: stage.record("ConcurrentRequestsPerCopy", 9))

    assert played(scene).services.asked[0] == 4


def test_all_tracking_policies_must_agree_on_less() -> None:
    """Capacity is reduced only if all tracking policies agree."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await track(stage)
        invocations = {"PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"}
        await stage.operations.put_policy(
            {
                **COMPONENT,
                "PolicyName": "calls",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 30.0,
                    "PredefinedMetricSpecification": invocations,
                },
            }
        )
        stage.alarms.mark_changed()

        def busy_with_short_calls() -> None:
            stage.record("ConcurrentRequestsPerCopy", 0)
            stage.record("InvocationsPerCopy", 5)

        await stage.pass_time(1200, busy_with_short_calls)

    assert played(scene).services.asked == []


def test_an_alarm_without_a_value_takes_the_step_at_the_threshold() -> None:
    """An alarm by missing data uses the step at the threshold."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await wake(stage, adjustment=0, kind="ExactCapacity", TreatMissingData="breaching")
        await stage.pass_time(60)

    assert played(scene).services.asked == [0]


def test_while_a_change_goes_on_no_other_is_asked_for() -> None:
    """No second change is requested while a copy starts."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await wake(stage)
        stage.services.slow = True
        await stage.pass_time(300, lambda: stage.record(REFUSALS, 1))
        assert stage.targets.activities[0].status == "InProgress"

    assert played(scene, count=0).services.asked == [1]


def test_what_sagemaker_refuses_fails_and_is_asked_for_again() -> None:
    """A change that SageMaker rejects fails with its text, and is repeated until it succeeds."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await wake(stage)
        stage.services.busy = True
        await stage.pass_time(120, lambda: stage.record(REFUSALS, 1))
        stage.services.busy = False
        await stage.pass_time(60, lambda: stage.record(REFUSALS, 1))

    activities = played(scene, count=0).targets.activities
    assert [one.status for one in activities] == ["Successful", "Failed", "Failed"]
    assert "UPDATE_IN_PROGRESS" in activities[1].message


def test_a_capacity_that_is_not_reached_is_unfulfilled() -> None:
    """A capacity that SageMaker does not reach is recorded as unfulfilled with SageMaker's reason."""

    async def scene(stage: Stage) -> None:
        await register(stage)
        await wake(stage)
        stage.services.stuck = "not enough hardware"
        await stage.pass_time(60, lambda: stage.record(REFUSALS, 1))

    (activity,) = played(scene, count=0).targets.activities
    assert activity.status == "Unfulfilled"
    assert "not enough hardware" in activity.message
