"""The alarms of an endpoint, and the SNS topic that they notify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from cohost.catalog.sections.lifecycle import ROLLBACK_ALARMS
from constructs_lib.monitoring.alarms import make_alarms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cohost.catalog.sections.monitoring import Alarms
    from constructs_lib.endpoints.metrics import EndpointMetrics


class Monitoring(Construct):
    """An SNS topic, and for each stated threshold an alarm that notifies the topic.

    Args:
        endpoint: the endpoint whose metrics the alarms watch.
        alarms: the thresholds by the catalog's keys; False for an alarm that is switched off.
        gpus: the number of GPUs of one instance, over which CloudWatch sums their use; 0 leaves out the GPU's alarm.
        email: the address to subscribe; its owner has to confirm a mail of SNS. None subscribes nobody.
        kms_key: the ARN of the KMS key that encrypts the topic; the key's policy has to let CloudWatch use it. None
            leaves messages in SNS unencrypted at rest; messages hold names and figures of the alarms.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        endpoint: EndpointMetrics,
        alarms: Alarms,
        gpus: int,
        email: str | None,
        kms_key: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(
            self,
            "Topic",
            display_name=f"lmi-cohost {endpoint.endpoint_name}",
            enforce_ssl=True,
            master_key=None if kms_key is None else kms.Key.from_key_arn(self, "Key", kms_key),
        )
        self._let_alarms_publish()
        if email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self.alarms: Mapping[str, cloudwatch.Alarm] = make_alarms(self, endpoint, alarms, gpus=gpus)
        for alarm in self.alarms.values():
            alarm.add_alarm_action(actions.SnsAction(self.topic))

    @property
    def rollback_alarm_names(self) -> list[str]:
        """Return the names of those alarms that roll an update back and are not switched off."""
        return [self.alarms[key].alarm_name for key in ROLLBACK_ALARMS if key in self.alarms]

    def _let_alarms_publish(self) -> None:
        """Allow CloudWatch to publish to the topic, because the topic's TLS policy replaces SNS's default policy."""
        stack = cdk.Stack.of(self)
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowAlarms",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {
                        "aws:SourceArn": stack.format_arn(
                            service="cloudwatch",
                            resource="alarm",
                            resource_name="*",
                            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
                        )
                    },
                },
            )
        )
