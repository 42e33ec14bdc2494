"""What the AWS on this machine is told at its start, and how its parts reach one another."""

from __future__ import annotations

import functools
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST: Final = "127.0.0.1"
# moto's account for every access key that it has not made itself; all state lies in this one account.
ACCOUNT_ID: Final = "123456789012"
DEFAULT_REGION: Final = "us-east-1"
PARTITION: Final = "aws"
# The key of the emulation's own calls, made anew in every process and written nowhere.
ACCESS_KEY: Final = f"AKIA{secrets.token_hex(8).upper()}"
SECRET_KEY: Final = secrets.token_urlsafe(30)
# A call on this machine that takes longer than the longest Lambda (15 minutes) will not come back.
READ_TIMEOUT_SECONDS: Final = 960
_BUILDING: Final = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `python -m local_aws up` was started with.

    Args:
        port: the front door's port on 127.0.0.1; 0 takes a free one.
        state_dir: folder for logs, fetched code, unpacked archives and `server.json`.
        catalog: the catalog that is to be deployed here; it is checked at the start and told in `server.json`.
        hub_roots: folders `org/name/` of Hugging Face files from which containers take weights.
        region: the region that requests without one belong to.
        speed: how much faster than real time the clock runs that alarms, cooldowns and schedules go by.
        managed_policies: whether IAM knows AWS's own managed policies, which the roles of `cdk bootstrap` name. It then
            takes a second more for its first answer, and again whenever everything is reset.
    """

    port: int
    state_dir: Path
    catalog: Path | None = None
    hub_roots: tuple[Path, ...] = ()
    region: str = DEFAULT_REGION
    speed: float = 1
    managed_policies: bool = True


@dataclass(frozen=True)
class Clients:
    """Gives boto3 clients that talk to the front door; one is kept for each service and region.

    Args:
        endpoint_url: says where the front door is; asked late, since a free port is known only after the start.
    """

    endpoint_url: Callable[[], str]
    _cached: Callable[[str, str], Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Bind the cache to this instance, so that two front doors in one process never share a client."""
        object.__setattr__(self, "_cached", functools.lru_cache(maxsize=None)(self._make))

    def get(self, service: str, region: str = DEFAULT_REGION) -> Any:  # noqa: ANN401 - one factory for all services
        """The client of `service`, e.g. `"s3"`."""
        return self._cached(service, region)

    def _make(self, service: str, region: str) -> Any:  # noqa: ANN401 - as `get`
        config = Config(
            read_timeout=READ_TIMEOUT_SECONDS,
            max_pool_connections=50,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
        )
        return make_client(service, region, endpoint_url=self.endpoint_url(), config=config)


def make_client(service: str, region: str, *, endpoint_url: str, config: Config) -> Any:  # noqa: ANN401 - one type a service
    """A client of the front door; building clients of one session is not safe in several threads, using them is."""
    with _BUILDING:
        session: Any = _session(region)
        return session.client(service, endpoint_url=endpoint_url, config=config)


@functools.cache
def _session(region: str) -> boto3.Session:
    """One session for all clients: it keeps the services' models and the list of endpoints, which take long to read."""
    return boto3.Session(aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=region)
