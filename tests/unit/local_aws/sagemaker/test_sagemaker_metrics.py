"""Metrics are sent once each, whatever the embedded CloudWatch answers meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from local_aws.sagemaker.telemetry.metrics import INSTANCE_METRICS, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeClients:
    """Clients of a CloudWatch that can reject a namespace, and stores values."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.taken: list[tuple[str, dict[str, float]]] = []

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do the work at once."""
        return function(*args)

    def cloudwatch(self) -> FakeClients:
        """Itself."""
        return self

    def put_metric_data(self, Namespace: str, MetricData: list[dict[str, Any]]) -> None:  # noqa: N803 - AWS's names
        """Store the values, or reject them."""
        if Namespace in self.refused:
            raise ClientError({"Error": {"Code": "500", "Message": "Internal Server Error"}}, "PutMetricData")
        self.taken += [(datum["MetricName"], datum["StatisticValues"]) for datum in MetricData]


def test_values_that_cloudwatch_refuses_are_sent_the_next_time() -> None:
    """Values that CloudWatch rejects are sent again later, and accepted ones are not."""
    clients = FakeClients()
    metrics = Metrics(clients, None)  # type: ignore[arg-type]
    meter = metrics.variant_meter("e", "v")
    clients.refused = {"AWS/SageMaker"}
    meter.count("Invocations", 3)
    meter.count("CPUUtilization", 7, namespace=INSTANCE_METRICS)
    with pytest.raises(ClientError):
        asyncio.run(metrics.publish())
    meter.count("Invocations", 5)
    clients.refused = set()
    asyncio.run(metrics.publish())
    asyncio.run(metrics.publish())
    assert sorted(clients.taken, key=lambda item: item[0]) == [
        ("CPUUtilization", {"SampleCount": 1, "Sum": 7, "Minimum": 7, "Maximum": 7}),
        ("Invocations", {"SampleCount": 2, "Sum": 8, "Minimum": 3, "Maximum": 5}),
    ]
