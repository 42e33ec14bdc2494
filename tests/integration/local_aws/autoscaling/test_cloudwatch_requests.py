"""CloudWatch at the front door: values of any form are evaluated by alarms."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
from botocore.exceptions import ClientError

from cohost.deploy.local_aws import read_key
from local_aws.testing.signing import signed_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.kit.clients import Clients
    from local_aws.server import LocalAws

pytestmark = pytest.mark.process

# An hour of the front door's clock is half a minute: a value is not too old for the next look on a busy machine either.
FOREVER = {"Period": 3600, "EvaluationPeriods": 1, "TreatMissingData": "ignore"}
ABOVE = {"Threshold": 1.0, "ComparisonOperator": "GreaterThanThreshold", **FOREVER}


def state(clients: Clients, name: str) -> str:
    """An alarm's state."""
    (alarm,) = clients.get("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return str(alarm["StateValue"])


def put_alarm(clients: Clients, name: str, **more: Any) -> None:
    """An alarm on metric `name` of namespace N, whose last known state lasts."""
    whole = {"Namespace": "N", "MetricName": name, "Statistic": "Maximum", **ABOVE, **more}
    clients.get("cloudwatch").put_metric_alarm(
        AlarmName=name, **{key: value for key, value in whole.items() if value is not None}
    )


@pytest.mark.parametrize(
    "datum",
    [
        {"Value": 2.0},
        {"Values": [0.0, 2.0], "Counts": [5.0, 1.0]},
        {"StatisticValues": {"SampleCount": 2, "Sum": 2, "Minimum": 0, "Maximum": 2}},
        {"Value": 2.0, "StorageResolution": 1},
    ],
)
def test_values_put_by_others_set_alarms_off(
    clients: Clients, datum: dict[str, Any], wait: Callable[..., None]
) -> None:
    """Single values, lists and statistic sets of either resolution set off an alarm, which a topic reports."""
    name = "-".join(datum)
    topic, queue = clients.get("sns").create_topic(Name=name)["TopicArn"], clients.get("sqs")
    url = queue.create_queue(QueueName=name)["QueueUrl"]
    arn = queue.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    clients.get("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    put_alarm(clients, name, AlarmActions=[topic])
    assert state(clients, name) == "INSUFFICIENT_DATA"
    clients.get("cloudwatch").put_metric_data(Namespace="N", MetricData=[{"MetricName": name, **datum}])
    wait(lambda: state(clients, name) == "ALARM")
    messages: list[Any] = []
    wait(lambda: messages.extend(queue.receive_message(QueueUrl=url).get("Messages", [])) or messages)
    assert json.loads(json.loads(messages[0]["Body"])["Message"])["NewStateValue"] == "ALARM"


def test_large_requests_are_packed_and_still_read(clients: Clients, wait: Callable[..., None]) -> None:
    """A request over 10 KiB, which botocore compresses, is read."""
    put_alarm(clients, "packed")
    data = [
        {"MetricName": "packed", "Value": 2.0, "Dimensions": [{"Name": "n", "Value": f"{i:0200}"}]} for i in range(99)
    ]
    clients.get("cloudwatch").put_metric_data(Namespace="N", MetricData=[*data, {"MetricName": "packed", "Value": 2.0}])
    wait(lambda: state(clients, "packed") == "ALARM")


def test_the_query_protocol_is_read_too(front: LocalAws, clients: Clients, wait: Callable[..., None]) -> None:
    """Requests in the query protocol of older SDKs are read."""
    put_alarm(clients, "form", Dimensions=[{"Name": "d", "Value": "1"}])
    form = {
        "Action": "PutMetricData",
        "Version": "2010-08-01",
        "Namespace": "N",
        "MetricData.member.1.MetricName": "form",
        "MetricData.member.1.Value": "2.5",
        "MetricData.member.1.Timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "MetricData.member.1.Dimensions.member.1.Name": "d",
        "MetricData.member.1.Dimensions.member.1.Value": "1",
    }
    content, kind = urlencode(form).encode(), {"content-type": "application/x-www-form-urlencoded"}
    key = read_key(front.settings.state_dir)
    headers = signed_headers(key, "POST", front.url, "monitoring", body=content, headers=kind)
    httpx.post(front.url, content=content, headers=headers, trust_env=False, timeout=60).raise_for_status()
    wait(lambda: state(clients, "form") == "ALARM")


def test_composite_alarms_are_refused(clients: Clients) -> None:
    """Composite alarms are rejected, because the emulator does not evaluate them."""
    with pytest.raises(ClientError, match="PutCompositeAlarm: not part of this emulation"):
        clients.get("cloudwatch").put_composite_alarm(AlarmName="c", AlarmRule="ALARM(a)")


def test_a_refused_request_leaves_no_value(clients: Clients, wait: Callable[..., None]) -> None:
    """The values of a PutMetricData request that moto rejects do not reach an alarm."""
    put_alarm(clients, "refused")
    with pytest.raises(ClientError):
        clients.get("cloudwatch").put_metric_data(
            Namespace="N", MetricData=[{"MetricName": "refused", "Values": [2.0], "Counts": [1.0, 2.0]}]
        )
    clients.get("cloudwatch").put_metric_data(Namespace="N", MetricData=[{"MetricName": "refused", "Value": 0.0}])
    wait(lambda: state(clients, "refused") == "OK")
