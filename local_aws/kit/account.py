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
    """The account and region of this SageMaker; builds the ARNs and console addresses in answers."""

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
        """Return the prefix of every ARN of the service."""
        return f"arn:{self.partition}:sagemaker:{self.region}:{self.account_id}"

    def log_group_arn(self, group: str) -> str:
        """Return the ARN of a log group, in the form of ModelError's LogStreamArn."""
        return f"arn:{self.partition}:logs:{self.region}:{self.account_id}:log-group:{group}"

    def log_group_page(self, group: str) -> str:
        """Return the console's page of a log group, in the form of ModelError's message."""
        return (
            f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
            f"?region={self.region}#logEventViewer:group={group}"
        )


def log_group(endpoint_name: str) -> str:
    """Return the log group of an endpoint's containers."""
    return f"/aws/sagemaker/Endpoints/{endpoint_name}"


def component_log_group(component_name: str) -> str:
    """Return the log group of an inference component's containers."""
    return f"/aws/sagemaker/InferenceComponents/{component_name}"
