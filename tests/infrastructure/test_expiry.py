"""The expiry of an endpoint: schedules, their rights, and their independence of the time of the synth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from synthesis import make_catalog, make_stack, only, resources, statements, template_of, waits_for

from cohost.catalog.models import Catalog

SCHEDULE = "AWS::Scheduler::Schedule"
SCALE_TO_ZERO = {"topology": "scale-to-zero"}


def with_end(expires: str, **endpoint: str) -> Catalog:
    """The catalog of two models with `expires`."""
    catalog = make_catalog(endpoint=dict(endpoint))
    return Catalog.model_validate({**catalog.model_dump(by_alias=True, exclude_unset=True), "expires": expires})


def synthesised(expires: str, **endpoint: str) -> dict[str, Any]:
    """The template of a catalog with `expires`."""
    return template_of(make_stack(with_end(expires, **endpoint)))


def schedules(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schedules' properties by the call that they make."""
    found = [one["Properties"] for one in resources(template, SCHEDULE).values()]
    return {
        one["Target"]["Arn"].rpartition(":")[2] if isinstance(one["Target"]["Arn"], str) else "topic": one
        for one in found
    }


def scheduler_role(template: dict[str, Any]) -> str:
    """The logical id of the role that the schedules have."""
    arns = {json.dumps(one["Properties"]["Target"]["RoleArn"]) for one in resources(template, SCHEDULE).values()}
    (arn,) = arns
    role: str = json.loads(arn)["Fn::GetAtt"][0]
    return role


def allowed(template: dict[str, Any]) -> set[str]:
    """The actions that the schedules' role may take."""
    return {
        action
        for statement in statements(template, scheduler_role(template))
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }


def test_no_end_unless_the_catalog_states_one(product: dict[str, Any]) -> None:
    """A catalog without `expires` has no schedule and no output about an expiry."""
    assert resources(product, SCHEDULE) == {}
    assert "EndOfLife" not in product["Outputs"]


def test_moment_stands_in_the_template_as_it_is() -> None:
    """A date or a moment is in the template unchanged, without a custom resource."""
    day, moment = synthesised("2026-12-31"), synthesised("2026-12-31T18:00+09:00")
    assert {one["ScheduleExpression"] for one in schedules(day).values()} == {"at(2027-01-01T00:00:00)"}
    assert {one["ScheduleExpression"] for one in schedules(moment).values()} == {"at(2026-12-31T09:00:00)"}
    assert all(one["ScheduleExpressionTimezone"] == "UTC" for one in schedules(moment).values())
    assert resources(moment, "Custom::LmiEndOfLife") == {}


def test_length_is_counted_by_who_deploys() -> None:
    """The template has the duration and no moment, so a second synth gives the same template."""
    template = synthesised("8h")
    moment_id, moment = only(template, "Custom::LmiEndOfLife")
    assert (moment["Properties"]["Expires"], moment["Properties"]["Minutes"]) == ("8h", 480)
    expected = {"Fn::Join": ["", ["at(", {"Fn::GetAtt": [moment_id, "At"]}, ")"]]}
    assert all(one["ScheduleExpression"] == expected for one in schedules(template).values())
    assert synthesised("8h") == template


def test_end_deletes_the_endpoint_and_nothing_else() -> None:
    """The expiry makes one call, retried for a day while the endpoint is being updated, and sends one notice."""
    template = synthesised("2026-12-31")
    found = schedules(template)
    assert set(found) == {"deleteEndpoint", "topic"}
    end = found["deleteEndpoint"]["Target"]
    assert end["Arn"] == "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    assert json.loads(end["Input"]) == {"EndpointName": "lmi-cohost"}
    assert end["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
    topic, _ = only(template, "AWS::SNS::Topic")
    notice = found["topic"]["Target"]
    assert notice["Arn"] == {"Ref": topic}
    assert "cohost expire 8h --stack LmiCohostStack" in notice["Input"]


def test_role_may_end_this_endpoint_and_tell_this_topic() -> None:
    """The schedules' role has two actions, each on one resource, for schedules of this stack's group only."""
    template = synthesised("2026-12-31")
    topic, _ = only(template, "AWS::SNS::Topic")
    endpoint, _ = only(template, "AWS::SageMaker::Endpoint")
    group, _ = only(template, "AWS::Scheduler::ScheduleGroup")
    role = scheduler_role(template)
    assert {one["Action"]: one["Resource"] for one in statements(template, role)} == {
        "sagemaker:DeleteEndpoint": {"Ref": endpoint},
        "sns:Publish": {"Ref": topic},
    }
    (trust,) = template["Resources"][role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"},
        "aws:SourceArn": {"Fn::GetAtt": [group, "Arn"]},
    }


def test_an_end_that_fails_sets_off_an_alarm() -> None:
    """A failed call of the expiry sets off an alarm, and the notice is sent anyway."""
    template = synthesised("2026-12-31")
    topic, _ = only(template, "AWS::SNS::Topic")
    group, _ = only(template, "AWS::Scheduler::ScheduleGroup")
    alarms = [one["Properties"] for one in resources(template, "AWS::CloudWatch::Alarm").values()]
    (alarm,) = [one for one in alarms if "cohost expire --stack LmiCohostStack" in one["AlarmDescription"]]
    read = [one["MetricStat"]["Metric"] for one in alarm["Metrics"] if "MetricStat" in one]
    assert {one["MetricName"] for one in read} == {"TargetErrorCount", "InvocationDroppedCount"}
    for one in read:
        assert (one["Namespace"], one["Dimensions"]) == (
            "AWS/Scheduler",
            [{"Name": "ScheduleGroup", "Value": {"Ref": group}}],
        )
    assert alarm["AlarmActions"] == [{"Ref": topic}]


def test_topic_with_a_key_can_be_told_too() -> None:
    """The schedules' role may use the key of an encrypted topic, and nothing else of KMS."""
    key = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
    stated = with_end("2026-12-31").model_dump(by_alias=True, exclude_unset=True)
    template = template_of(make_stack(Catalog.model_validate({**stated, "monitoring": {"kms_key": key}})))
    rights = statements(template, scheduler_role(template))
    (of_key,) = [one for one in rights if one["Resource"] == key]
    assert of_key["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


def test_schedules_come_after_what_they_end() -> None:
    """Schedules are created after their endpoint and deleted before it, so none names a missing endpoint."""
    template = synthesised("2026-12-31")
    endpoint, _ = only(template, "AWS::SageMaker::Endpoint")
    assert all(waits_for(template, name, endpoint) for name in resources(template, SCHEDULE))


def test_scale_to_zero_loses_its_copies_and_keeps_its_parts() -> None:
    """The expiry of scale-to-zero suspends scaling, sets bounds and copies to 0, and deletes nothing."""
    template = synthesised("2026-12-31", **SCALE_TO_ZERO)
    found = schedules(template)
    assert set(found) == {"registerScalableTarget", "updateInferenceComponentRuntimeConfig", "topic"}
    bounds = json.loads(found["registerScalableTarget"]["Target"]["Input"])
    copies = json.loads(found["updateInferenceComponentRuntimeConfig"]["Target"]["Input"])
    assert bounds == {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "inference-component/lmi-cohost-models",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
        "MinCapacity": 0,
        "MaxCapacity": 0,
        "SuspendedState": {"DynamicScalingOutSuspended": True, "ScheduledScalingSuspended": True},
    }
    assert copies == {"InferenceComponentName": "lmi-cohost-models", "DesiredRuntimeConfig": {"CopyCount": 0}}
    assert found["registerScalableTarget"]["ScheduleExpression"] == "at(2027-01-01T00:00:00)"
    assert found["updateInferenceComponentRuntimeConfig"]["ScheduleExpression"] == "at(2027-01-01T00:01:00)"
    assert allowed(template) == {
        "application-autoscaling:RegisterScalableTarget",
        "sagemaker:DescribeInferenceComponent",
        "sagemaker:UpdateInferenceComponentRuntimeConfig",
        "sns:Publish",
    }


def test_target_of_scaling_is_limited_to_components() -> None:
    """Conditions limit the right to change scalable targets to components, because the target's id is generated."""
    template = synthesised("2026-12-31", **SCALE_TO_ZERO)
    (register,) = [
        one
        for one in statements(template, scheduler_role(template))
        if one["Action"] == "application-autoscaling:RegisterScalableTarget"
    ]
    assert register["Condition"]["StringEquals"] == {
        "application-autoscaling:service-namespace": "sagemaker",
        "application-autoscaling:scalable-dimension": "sagemaker:inference-component:DesiredCopyCount",
    }


def test_command_finds_everything_in_one_output() -> None:
    """One output has the group, the schedules with their delays, the endpoint config and the bounds."""
    text = synthesised("8h", **SCALE_TO_ZERO)["Outputs"]["EndOfLife"]["Value"]["Fn::Join"][1]
    facts = json.loads("".join(one if isinstance(one, str) else "TOKEN" for one in text))
    assert facts == {
        "action": "copies-to-zero",
        "group": "TOKEN",
        "schedules": [["TOKEN", 0], ["TOKEN", 60], ["TOKEN", 0]],
        "config": "TOKEN",
        "component": "lmi-cohost-models",
        "bounds": [0, 1],
    }


@pytest.mark.parametrize(("expires", "errors"), [("2020-01-01", 1), ("2026-12-31", 0), ("8h", 0)])
def test_moment_that_is_past_stops_the_deploy(expires: str, errors: int) -> None:
    """An expiry in the past fails the deploy, because no schedule would end the endpoint."""
    stack = make_stack(with_end(expires))
    texts = [one.data for one in stack.node.metadata if one.type == "aws:cdk:error"]
    assert len([text for text in texts if "lmi-cohost:expires-past" in str(text)]) == errors
