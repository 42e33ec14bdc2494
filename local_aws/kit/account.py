"""The emulated account and region: its ARNs, its partition, and the address that everything listens on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOST: Final = "127.0.0.1"
# moto's account for every access key that it has not made itself; all state lies in this one account.
ACCOUNT_ID: Final = "123456789012"
DEFAULT_REGION: Final = "us-east-1"
PARTITION: Final = "aws"


@dataclass(frozen=True, kw_only=True)
class Account:
    """Whose SageMaker this is; makes the ARNs and console addresses that answers hold."""

    account_id: str
    region: str

    @property
    def partition(self) -> str:
        """The AWS partition of the region."""
        for start, partition in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")):
            if self.region.startswith(start):
                return partition
        return "aws"

    @property
    def arn_prefix(self) -> str:
        """What every ARN of the service starts with."""
        return f"arn:{self.partition}:sagemaker:{self.region}:{self.account_id}"

    def log_group_arn(self, group: str) -> str:
        """The ARN of a log group, as ModelError's LogStreamArn has it."""
        return f"arn:{self.partition}:logs:{self.region}:{self.account_id}:log-group:{group}"

    def log_group_page(self, group: str) -> str:
        """The console's page of a log group, as ModelError's message has it."""
        return (
            f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
            f"?region={self.region}#logEventViewer:group={group}"
        )


def log_group(endpoint_name: str) -> str:
    """The log group of an endpoint's containers."""
    return f"/aws/sagemaker/Endpoints/{endpoint_name}"


def component_log_group(component_name: str) -> str:
    """The log group of an inference component's containers."""
    return f"/aws/sagemaker/InferenceComponents/{component_name}"
