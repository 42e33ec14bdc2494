"""boto3 clients that call the emulated services, and threads for their blocking calls."""

from __future__ import annotations

import asyncio
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

import boto3
from botocore.config import Config

from local_aws.kit.access_keys import ACCESS_KEY, SECRET_KEY, AccessKeys
from local_aws.kit.account import DEFAULT_REGION

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient

    from local_aws.kit.access_keys import AccessKey

    Service = Literal["s3", "iam", "logs", "cloudwatch", "sagemaker", "sns", "application-autoscaling"]

# A call that takes longer than the longest Lambda function (15 minutes) will never be answered.
READ_TIMEOUT_SECONDS: Final = 960
_BUILDING: Final = threading.Lock()


@dataclass(frozen=True)
class Clients:
    """A cache of boto3 clients for blocking code that call the emulator, one per service, region and access key.

    A client waits for an answer for at most `READ_TIMEOUT_SECONDS`, and never retries a call.

    Args:
        endpoint_url: returns the emulator's URL; called late, since a free port is known only after the start.
    """

    endpoint_url: Callable[[], str]
    _cached: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Create a cache for this instance alone, so that two emulators in one process never share a client."""
        object.__setattr__(self, "_cached", functools.lru_cache(maxsize=None)(self._make))

    def get(self, service: str, region: str = DEFAULT_REGION) -> Any:  # the type depends on the service
        """Return the client of a service such as `"s3"`, whose calls are signed with the emulator's own key."""
        return self._cached(service, region)

    # the type depends on the service
    def signed_by(self, key: AccessKey, service: str, region: str = DEFAULT_REGION) -> Any:
        """Return a client of `service` whose calls are signed with the key of a role, so the role's policies apply."""
        return self._cached(service, region, key)

    def _make(self, service: str, region: str, key: AccessKey | None = None) -> Any:
        config = Config(
            read_timeout=READ_TIMEOUT_SECONDS,
            max_pool_connections=50,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
        )
        return make_client(service, region, endpoint_url=self.endpoint_url(), config=config, key=key)


def make_client(
    service: str, region: str, *, endpoint_url: str, config: Config, key: AccessKey | None = None
) -> Any:  # the type depends on the service
    """Make a boto3 client of the emulator; hold a lock, since a session may build clients only in one thread at a time.

    Args:
        service: botocore's name of the service.
        region: the region of the client's calls.
        endpoint_url: the emulator's URL.
        config: botocore's settings.
        key: the access key that signs the calls; None for the emulation's own.
    """
    signer = {} if key is None else _signer(key)
    with _BUILDING:
        session: Any = _session(region)
        return session.client(service, endpoint_url=endpoint_url, config=config, **signer)


def _signer(key: AccessKey) -> dict[str, str | None]:
    return {
        "aws_access_key_id": key.key_id,
        "aws_secret_access_key": key.secret,
        "aws_session_token": key.token,
    }


@functools.cache
def _session(region: str) -> boto3.Session:
    """Return the region's one boto3 session, which caches the service models and endpoints: reading them takes long."""
    return boto3.Session(aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=region)


P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 16
_ENDPOINT_TIMEOUTS_S = 10

# The name that SageMaker gives to its sessions of an execution role, as CloudTrail records them.
_SESSION = "SageMaker"

MARK = "lmi-cohost-part"
"""Text in the User-Agent of calls that the emulated services make themselves."""


class ServiceClients:
    """The boto3 clients, and their threads, with which async code of one emulated service calls the other ones.

    Blocking calls do not use the event loop's default threads. The called services may run in the default threads of
    this process; if waiting calls occupied all of these threads, no thread would be left to answer them.

    Args:
        endpoint_url: returns the emulator's URL; called when the first client is built.
        region: the region of all clients.
        keys: makes the access keys of execution roles; None for keys that the gateway does not accept.
    """

    def __init__(self, endpoint_url: Callable[[], str], region: str, keys: AccessKeys | None = None) -> None:
        self._endpoint_url = endpoint_url
        self.region = region
        self._keys = AccessKeys() if keys is None else keys
        self._clients: dict[tuple[str, str | None], Any] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sagemaker-aws")

    def s3(self, role: str | None = None) -> S3Client:
        """Return the client of the emulated S3. Call this method inside `run`: the first call builds the client.

        Args:
            role: the ARN of the execution role that signs the client's calls; None for the emulation's own key.
        """
        client: S3Client = self._client("s3", role)
        return client

    def iam(self) -> IAMClient:
        """Return the client of the emulated IAM; used like `s3`."""
        client: IAMClient = self._client("iam")
        return client

    def logs(self) -> CloudWatchLogsClient:
        """Return the client of the emulated CloudWatch Logs; used like `s3`."""
        client: CloudWatchLogsClient = self._client("logs")
        return client

    def cloudwatch(self, role: str | None = None) -> CloudWatchClient:
        """Return the client of the emulated CloudWatch; used like `s3`."""
        client: CloudWatchClient = self._client("cloudwatch", role)
        return client

    def sagemaker(self) -> SageMakerClient:
        """Return the client of the emulated SageMaker; used like `s3`."""
        client: SageMakerClient = self._client("sagemaker")
        return client

    def auto_scaling(self) -> Any:  # the type stubs of this client are not installed
        """Return the client of the emulated Application Auto Scaling; used like `s3`."""
        return self._client("application-autoscaling")

    def sns(self) -> Any:  # the type stubs of this client are not installed
        """Return the client of the emulated SNS; used like `s3`."""
        return self._client("sns")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in one of this object's threads, and return the function's result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    def container_environment(self, role: str | None) -> dict[str, str]:
        """Return the environment variables with which a container calls the other services as its execution role.

        Args:
            role: the execution role's ARN; None for a container without a role, which gets empty keys.
        """
        none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": ""}
        return {
            "AWS_ENDPOINT_URL": self._endpoint_url(),
            **(none if role is None else self._keys.for_role(role, _SESSION).environment()),
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    async def close(self) -> None:
        """End the threads: cancel calls that have not begun, and wait until the running ones have returned."""
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    def _client(self, service: Service, role: str | None = None) -> Any:  # the type depends on the service
        if (service, role) not in self._clients:
            url, key = self._endpoint_url(), None if role is None else self._keys.for_role(role, _SESSION)
            client = make_client(service, self.region, endpoint_url=url, config=_CONFIG, key=key)
            self._clients[service, role] = client
        return self._clients[service, role]


_CONFIG = Config(
    user_agent_extra=MARK,
    connect_timeout=_ENDPOINT_TIMEOUTS_S,
    read_timeout=_ENDPOINT_TIMEOUTS_S * 6,
    retries={"total_max_attempts": 2, "mode": "standard"},
    max_pool_connections=_THREADS,
    s3={"addressing_style": "path"},
)
