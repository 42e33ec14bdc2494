"""The monitoring, data capture, guardrails and expiry of an endpoint, as the catalog states them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk

from cohost.archives.handlers import ENGINE_HANDLERS
from cohost.catalog.sections.lifecycle import is_past, read_expiry
from cohost.forecast.pricing.changes import PER_HOUR, planned_costs
from cohost.hardware.instances import INSTANCES
from cohost.waiting import now
from constructs_lib.endpoints.data_capture import DataCapture
from constructs_lib.endpoints.guardrails import deployment_config
from constructs_lib.lifecycle.expiry import EndpointExpiry
from constructs_lib.monitoring.dashboard import Dashboard
from constructs_lib.monitoring.model_metrics import ModelMetrics
from constructs_lib.monitoring.monitoring import Monitoring

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

    from cohost.catalog.models import Catalog
    from cohost.forecast.pricing.price_list import PriceList
    from constructs_lib.endpoints.hosted_endpoint import HostedEndpoint

# The number of GPUs that is assumed for an instance type that is in no table.
_UNKNOWN_GPUS: Final = 1


def add_monitoring(stack: cdk.Stack, catalog: Catalog, *, endpoint: HostedEndpoint, prices: PriceList) -> Monitoring:
    """Add the alarms, their SNS topic and the dashboard, with outputs for the topic's ARN and the dashboard's URL."""
    settings = catalog.monitoring
    instance = INSTANCES.get(catalog.endpoint.instance_type)
    monitoring = Monitoring(
        stack,
        "Monitoring",
        endpoint=endpoint,
        alarms=settings.alarms,
        gpus=_UNKNOWN_GPUS if instance is None else instance.gpus,
        email=settings.email,
        kms_key=settings.kms_key,
    )
    topic_arn = monitoring.topic.topic_arn
    cdk.CfnOutput(stack, "AlarmTopicArn", value=topic_arn, description="Alarms are published to this topic")
    if settings.email is None:
        # The ARN is a token, so it cannot be quoted for a shell here; an ARN needs no quotes.
        command = f"aws sns subscribe --region {stack.region} --topic-arn {topic_arn} --protocol email"
        cdk.CfnOutput(stack, "AlarmSubscribe", value=f"{command} --notification-endpoint YOUR@ADDRESS")
    counted = [name for name, entry in catalog.models.items() if entry.handler in ENGINE_HANDLERS]
    models = None
    if settings.model_metrics:
        models = ModelMetrics(
            stack, "ModelMetrics", endpoint_name=endpoint.endpoint_name, log_group=endpoint.container_log_group
        )
    if settings.dashboard:
        cost = planned_costs(catalog, prices, stack.region)[PER_HOUR]
        dashboard = Dashboard(
            stack,
            "Dashboard",
            endpoint=endpoint,
            alarms=list(monitoring.alarms.values()),
            usd_per_hour=cost.value,
            price_source=cost.description,
            model_metrics=models,
            models=counted,
        )
        cdk.CfnOutput(stack, "DashboardUrl", value=dashboard.url)
    return monitoring


def add_data_capture(stack: cdk.Stack, catalog: Catalog, *, endpoint: HostedEndpoint) -> None:
    """Add data capture with its bucket, if the catalog asks for it, and an output for the address of the records."""
    if (settings := catalog.data_capture) is None:
        return
    capture = DataCapture(stack, "DataCapture", endpoint=endpoint, **settings.model_dump())
    cdk.CfnOutput(stack, "DataCaptureUrl", value=f"s3://{capture.bucket.bucket_name}/{settings.prefix}")


def add_guardrails(catalog: Catalog, *, endpoint: HostedEndpoint, monitoring: Monitoring) -> None:
    """Apply the catalog's deployment guardrails, if there are any: alarms then roll back updates of the endpoint."""
    if (guardrails := catalog.deployment) is None:
        return
    own = guardrails.rollback_alarms
    names = own if isinstance(own, tuple) else monitoring.rollback_alarm_names if own else ()
    endpoint.guard_updates(deployment_config(guardrails, names), names)


def add_expiry(stack: cdk.Stack, catalog: Catalog, *, endpoint: HostedEndpoint, topic: sns.ITopic) -> None:
    """Add the endpoint's expiry, if the catalog states one, and the output that `cohost expire` reads."""
    if (stated := catalog.expires) is None:
        return
    if is_past(stated, now()):
        cdk.Annotations.of(stack).add_error(
            f"expires: {stated} is past; allowed: a moment to come; fix: write a later one, or take expires out "
            "[lmi-cohost:expires-past]"
        )
    expiry = EndpointExpiry(
        stack,
        "Expiry",
        endpoint=endpoint,
        expiry=read_expiry(stated),
        stated=stated,
        topic=topic,
        scaling=catalog.scaling,
    )
    cdk.CfnOutput(stack, "EndOfLife", value=expiry.facts, description="What `cohost expire` needs to know")
