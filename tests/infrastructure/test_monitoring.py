"""Alarms, their topic and the dashboard, with and without the section `monitoring`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from synthesis import make_catalog, make_stack, only, resources, template_of

from cohost.catalog.sections.monitoring import Alarms, Monitoring
from constructs_lib.monitoring.model_metrics import METRICS
from local_aws.kit.filter_patterns import datum_of, parse_pattern

ALARM, TOPIC = "AWS::CloudWatch::Alarm", "AWS::SNS::Topic"
EVERY_ALARM = set(Alarms.model_fields)


def synthesised(instance_type: str = "ml.g5.xlarge", **settings: Any) -> dict[str, Any]:
    """The template of a catalog with a section `monitoring`."""
    catalog = make_catalog(endpoint={"instance_type": instance_type})
    return template_of(make_stack(catalog.model_copy(update={"monitoring": Monitoring.model_validate(settings)})))


def alarms_of(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of the alarms by the catalog's key, which each description ends with."""
    found = [alarm["Properties"] for alarm in resources(template, ALARM).values()]
    # Those that scaling goes by have no such description.
    told = [one for one in found if "monitoring.alarms." in one.get("AlarmDescription", "")]
    return {one["AlarmDescription"].rpartition("monitoring.alarms.")[2].rstrip(")"): one for one in told}


def widgets_of(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the widgets of the dashboard, with TOKEN for values that are known only later."""
    _, dashboard = only(template, "AWS::CloudWatch::Dashboard")
    body = dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
    found: list[dict[str, Any]] = json.loads("".join(one if isinstance(one, str) else "TOKEN" for one in body))[
        "widgets"
    ]
    return found


def test_forgotten_endpoint_is_told_of_without_being_asked(product: dict[str, Any]) -> None:
    """A catalog without `monitoring` has two alarms, a topic and an output with the command to subscribe."""
    assert set(alarms_of(product)) == {"idle_hours", "client_errors_percent"}
    assert resources(product, "AWS::SNS::Subscription") == {}
    assert resources(product, "AWS::CloudWatch::Dashboard") == {}
    topic, _ = only(product, TOPIC)
    command = product["Outputs"]["AlarmSubscribe"]["Value"]["Fn::Join"][1]
    assert command[0] == "aws sns subscribe --region us-east-1 --topic-arn "
    assert command[1] == product["Outputs"]["AlarmTopicArn"]["Value"] == {"Ref": topic}


def test_idle_means_an_instance_that_nobody_called(product: dict[str, Any]) -> None:
    """The idle alarm fires after twelve hours of instances without a call, and not on missing data."""
    idle = alarms_of(product)["idle_hours"]
    metrics = {one["Id"]: one for one in idle["Metrics"]}
    calls, alive = metrics["calls"]["MetricStat"], metrics["alive"]["MetricStat"]
    assert (calls["Metric"]["MetricName"], calls["Stat"], calls["Period"]) == ("Invocations", "Sum", 3600)
    assert (alive["Metric"]["MetricName"], alive["Stat"], alive["Period"]) == ("CPUUtilization", "SampleCount", 3600)
    assert metrics["expr_1"]["Expression"] == "SUM([calls, 0 * alive])"
    assert (idle["EvaluationPeriods"], idle["DatapointsToAlarm"], idle["Threshold"]) == (12, 12, 1)
    assert (idle["ComparisonOperator"], idle["TreatMissingData"]) == ("LessThanThreshold", "notBreaching")


def test_model_that_answers_nothing_but_4xx_is_told_of_without_being_asked(product: dict[str, Any]) -> None:
    """An alarm fires if over a tenth of the calls gets 4xx for three periods of five minutes on end."""
    refused = alarms_of(product)["client_errors_percent"]
    metric = (refused["Namespace"], refused["MetricName"], refused["Statistic"], refused["Period"])
    assert metric == ("AWS/SageMaker", "Invocation4XXErrors", "Average", 300)
    assert (refused["EvaluationPeriods"], refused["DatapointsToAlarm"], refused["Threshold"]) == (3, 3, 0.1)
    assert (refused["ComparisonOperator"], refused["TreatMissingData"]) == ("GreaterThanThreshold", "notBreaching")
    assert "`cohost status --probe`" in refused["AlarmDescription"]


def test_section_switches_everything_on() -> None:
    """`monitoring` with only an address has all alarms, the dashboard and the subscription."""
    template = synthesised(email="team@example.com")
    topic, _ = only(template, TOPIC)
    _, subscription = only(template, "AWS::SNS::Subscription")
    assert set(alarms_of(template)) == EVERY_ALARM
    assert subscription["Properties"] == {
        "Endpoint": "team@example.com",
        "Protocol": "email",
        "TopicArn": {"Ref": topic},
    }
    assert all(alarm["AlarmActions"] == [{"Ref": topic}] for alarm in alarms_of(template).values())
    assert "AlarmSubscribe" not in template["Outputs"]
    assert "#dashboards/dashboard/" in json.dumps(template["Outputs"]["DashboardUrl"])


@pytest.mark.parametrize("key", sorted(EVERY_ALARM))
def test_each_alarm_can_be_switched_off(key: str) -> None:
    """`false` removes one alarm and no other."""
    assert set(alarms_of(synthesised(alarms={key: False}))) == EVERY_ALARM - {key}


def test_thresholds_are_the_catalogs_in_the_units_of_the_metrics() -> None:
    """Thresholds are converted to the units of the metrics: shares, microseconds, sums over GPUs."""
    wanted = {
        "idle_hours": 3,
        "client_errors_percent": 20,
        "server_errors_percent": 2,
        "model_errors_percent": 10,
        "model_latency_p99_ms": 250,
        "gpu_memory_percent": 90,
        "disk_percent": 70,
        "model_loading_wait_seconds": 30,
    }
    found = alarms_of(synthesised("ml.g6.12xlarge", alarms=wanted))
    assert found.pop("idle_hours")["EvaluationPeriods"] == 3
    assert {key: alarm["Threshold"] for key, alarm in found.items()} == {
        "client_errors_percent": 0.2,
        "server_errors_percent": 0.02,
        "model_errors_percent": 0.1,
        "model_latency_p99_ms": 250_000,
        "gpu_memory_percent": 360,
        "disk_percent": 70,
        "model_loading_wait_seconds": 30_000_000,
    }


def test_every_alarm_watches_this_endpoint() -> None:
    """Each alarm has the endpoint's name and variant as dimensions."""
    template = synthesised()
    for key, alarm in alarms_of(template).items():
        stats = [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", []) if "MetricStat" in one] or [alarm]
        for stat in stats:
            dimensions = {one["Name"]: one["Value"] for one in stat["Dimensions"]}
            assert dimensions == {"EndpointName": "lmi-cohost", "VariantName": "AllTraffic"}, key


def test_machine_without_a_gpu_has_no_alarm_of_its_memory() -> None:
    """A type without a GPU has no alarm for GPU memory."""
    assert set(alarms_of(synthesised("ml.c7i.xlarge"))) == EVERY_ALARM - {"gpu_memory_percent"}


def test_topic_takes_alarms_of_this_account_and_nothing_without_tls() -> None:
    """The topic's own policy lets CloudWatch alarms publish, because it replaces the default policy."""
    _, policy = only(synthesised(), "AWS::SNS::TopicPolicy")
    deny, allow = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert (allow["Effect"], allow["Action"]) == ("Allow", "sns:Publish")
    assert allow["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert ":alarm:*" in json.dumps(allow["Condition"]["ArnLike"])


def test_topic_can_have_a_key() -> None:
    """The topic is encrypted with the stated key."""
    arn = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
    _, topic = only(synthesised(kms_key=arn), TOPIC)
    assert topic["Properties"]["KmsMasterKeyId"] == arn


def test_dashboard_shows_all_that_was_promised() -> None:
    """Price first, then alarms, calls, latencies, instances, scaling and models; each metric is of this endpoint."""
    widgets = widgets_of(synthesised())
    text = widgets[0]["properties"]["markdown"]
    assert "**1.408 USD**" in text
    assert "AWS Pricing API, 2026-08-07" in text
    assert len(widgets[1]["properties"]["alarms"]) == len(EVERY_ALARM)
    shown = json.dumps(widgets[2:])
    names = (
        "Invocations", "Invocation5XXErrors", "Invocation4XXErrors", "InvocationModelErrors", "ModelLatency",
        "OverheadLatency", "GPUUtilization", "GPUMemoryUtilization", "MemoryUtilization", "DiskUtilization",
        "CPUUtilization", "InvocationsPerInstance", "LoadedModelCount", "ModelCacheHit", "ModelLoadingWaitTime",
        "ModelDownloadingTime", "ModelLoadingTime",
    )  # fmt: skip
    assert [name for name in names if f'"{name}"' not in shown] == []
    assert all(f'"stat": "{statistic}"' in shown for statistic in ("p50", "p90", "p99"))


def test_component_is_watched_by_its_own_metrics() -> None:
    """With scale-to-zero the alarms read the component's metrics of calls and the endpoint's metrics of instances."""
    catalog = make_catalog(endpoint={"topology": "scale-to-zero"})
    template = template_of(make_stack(catalog.model_copy(update={"monitoring": Monitoring()})))
    found = alarms_of(template)
    assert set(found) == EVERY_ALARM - {"model_loading_wait_seconds"}
    assert found["server_errors_percent"]["Dimensions"] == [
        {"Name": "InferenceComponentName", "Value": "lmi-cohost-models"}
    ]
    assert {one["Name"] for one in found["disk_percent"]["Dimensions"]} == {"EndpointName", "VariantName"}
    shown = json.dumps(widgets_of(template))
    assert '"NoCapacityInvocationFailures"' in shown
    assert '"ConcurrentRequestsPerCopy"' in shown
    assert not [name for name in ("ModelCacheHit", "InvocationsPerInstance") if name in shown]


def test_unknown_price_is_said_to_be_unknown() -> None:
    """The dashboard of a type without a known price shows no figure."""
    assert "**unknown**" in widgets_of(synthesised("ml.g9.xlarge"))[0]["properties"]["markdown"]


def test_dashboard_can_be_left_out() -> None:
    """`dashboard: false` removes the dashboard and its output, and no alarm."""
    template = synthesised(dashboard=False)
    assert resources(template, "AWS::CloudWatch::Dashboard") == {}
    assert "DashboardUrl" not in template["Outputs"]
    assert set(alarms_of(template)) == EVERY_ALARM


@pytest.mark.parametrize(
    "alarms",
    [{"idle_hours": 0}, {"idle_hours": 169}, {"disk_percent": 0}, {"disk_percent": "90"}, {"disk_percent": True}],
)
def test_threshold_that_means_nothing_is_refused(alarms: dict[str, Any]) -> None:
    """The thresholds 0, text and `true` are rejected."""
    with pytest.raises(ValidationError):
        Alarms.model_validate(alarms)


FILTER = "AWS::Logs::MetricFilter"
BATCHED = {"model_id": "org/name", "task": "text-classification", "handler": "batched"}


def counted(topology: str = "multi-model", **monitoring: Any) -> dict[str, Any]:
    """The template of a catalog with a shared, a batched and a stock model, and metrics of each model."""
    models = {"own": BATCHED, "one": BATCHED | {"handler": "shared"}, "plain": BATCHED | {"handler": "stock"}}
    catalog = make_catalog(models=models, endpoint={"topology": topology}, scaling={"min": 1, "max": 1})
    settings = Monitoring.model_validate({"model_metrics": True, **monitoring})
    return template_of(make_stack(catalog.model_copy(update={"monitoring": settings})))


@pytest.mark.parametrize(
    ("topology", "group"),
    [
        ("multi-model", "/aws/sagemaker/Endpoints/lmi-cohost"),
        ("scale-to-zero", "InferenceComponents/lmi-cohost-models"),
    ],
)
def test_metrics_of_each_model_are_read_from_the_containers_log(topology: str, group: str) -> None:
    """One filter per metric on the group that the containers write to; the line's form is what the handlers print."""
    template = counted(topology)
    filters = [one["Properties"] for one in resources(template, FILTER).values()]
    groups = resources(template, "AWS::Logs::LogGroup")

    assert {one["MetricTransformations"][0]["MetricName"] for one in filters} == set(METRICS)
    (pattern,) = {one["FilterPattern"] for one in filters}
    (place,) = {one["LogGroupName"]["Ref"] for one in filters}
    assert groups[place]["Properties"]["LogGroupName"].endswith(group)
    found = {}
    line = "INFO  PyProcess W-9-x-stdout: cohost-metrics one 7 1 900 12.5 80 3.25 40"
    for one in filters:
        (transformation,) = one["MetricTransformations"]
        assert transformation["MetricNamespace"] == "LmiCohost/lmi-cohost"
        datum = datum_of(
            parse_pattern(pattern),
            {
                "metricName": transformation["MetricName"],
                "metricValue": transformation["MetricValue"],
                "dimensions": {each["Key"]: each["Value"] for each in transformation["Dimensions"]},
            },
            line,
        )
        assert datum is not None
        assert datum["Dimensions"] == [{"Name": "Model", "Value": "one"}]
        found[datum["MetricName"]] = datum["Value"]
    assert found == {
        "Requests": 7,
        "Errors": 1,
        "Tokens": 900,
        "Latency": 12.5,
        "LatencyP99": 80,
        "Queue": 3.25,
        "QueueP99": 40,
    }


def test_metrics_of_each_model_are_asked_for(product: dict[str, Any]) -> None:
    """CloudWatch bills each of them, so a catalog that says nothing has none."""
    assert resources(product, FILTER) == {}
    assert resources(synthesised(), FILTER) == {}


def test_the_dashboard_shows_the_models_that_are_counted() -> None:
    """A line per model, of those whose handler logs its figures."""
    shown = {widget["properties"].get("title"): widget for widget in widgets_of(counted())}
    metrics = shown["Latency p99 of each model, ms"]["properties"]["metrics"]
    assert [one[:4] for one in metrics] == [
        ["LmiCohost/lmi-cohost", "LatencyP99", "Model", "own"],
        ["LmiCohost/lmi-cohost", "LatencyP99", "Model", "one"],
    ]
    assert "Requests of each model" not in {widget["properties"].get("title") for widget in widgets_of(synthesised())}
