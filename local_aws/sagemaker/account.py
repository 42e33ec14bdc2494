"""The account and region that the emulation stands for."""

from __future__ import annotations

from dataclasses import dataclass


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
