"""The emulated account and region: ARNs, partition, and the address on which all servers of the emulator listen."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

HOST: Final = "127.0.0.1"
# moto uses this account for every access key that moto did not issue; all state is in this one account.
ACCOUNT_ID: Final = "123456789012"
DEFAULT_REGION: Final = "us-east-1"
PARTITION: Final = "aws"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The emulated account and region; builds the ARNs and console addresses in SageMaker's answers."""

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
        """Return the prefix of all SageMaker ARNs, `arn:PARTITION:sagemaker:REGION:ACCOUNT`."""
        return f"arn:{self.partition}:sagemaker:{self.region}:{self.account_id}"

    def log_group_arn(self, group: str) -> str:
        """Return the ARN of a log group in the form that LogStreamArn of ModelError has."""
        return f"arn:{self.partition}:logs:{self.region}:{self.account_id}:log-group:{group}"

    def log_group_page(self, group: str) -> str:
        """Return the URL of a log group's page in the AWS console, in the form that ModelError's message contains."""
        return (
            f"https://{self.region}.console.aws.amazon.com/cloudwatch/home"
            f"?region={self.region}#logEventViewer:group={group}"
        )


def bound_listener(port: int, host: str = HOST, *, backlog: int | None = None) -> socket.socket:
    """Bind a TCP socket for a server; port 0 chooses a free port.

    If `backlog` is given, the socket listens at once: callers that connect before the server accepts connections wait
    instead of being refused.

    Raises:
        OSError: the address is in use, or not permitted to this user.
        OverflowError: the port is not from 0 to 65535.
    """
    # asyncio turns Nagle's algorithm off only for a socket that names its protocol. With Nagle's algorithm, every
    # answer that is written in two parts waits some 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        if backlog is not None:
            listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def log_group(endpoint_name: str) -> str:
    """Return the name of the log group of an endpoint's containers."""
    return f"/aws/sagemaker/Endpoints/{endpoint_name}"


def component_log_group(component_name: str) -> str:
    """Return the name of the log group of an inference component's containers."""
    return f"/aws/sagemaker/InferenceComponents/{component_name}"
