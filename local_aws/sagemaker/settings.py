"""Settings of the emulated SageMaker, with the service's own values as defaults, and the quotas that they set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cohost.hardware.instances import INSTANCES
from local_aws.sagemaker.errors import ResourceLimitExceeded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping


# Enough for any stack of this project; types that the table lacks have a quota of 0, like in a fresh account.
_QUOTA_PER_TYPE = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Time limits in seconds, quotas and intervals; `instance_idle_s` and `concurrency_interval_s` go by the clock.

    `load_wait_s`: a call waits so long for its model, then gets ModelNotReadyException (AWS: "Invoke a Multi-Model
    Endpoint"). `load_limit_s`: fetching and loading go on so long in the background (same page).
    `invocation_timeout_s`: a container must answer within it (AWS: "real-time inference" quotas).
    `transition_delay_s`: endpoints and components stay at least so long in Creating, Updating and Deleting.
    `alive_interval_s`: how often a container's process is looked at.
    `ping_interval_s`, `ping_failures`, `replacement_delay_s`: how often a container is pinged, how many pings in a row
    fail before it gets no calls any more, and how much later another one starts in its place. AWS documents none of
    the three; they can be changed while endpoints run (local_aws/sagemaker/fault_injection.py).
    `drain_limit_s`: running calls may finish so long before an old instance is stopped.
    `publish_interval_s`: how often metrics and log lines go to the embedded CloudWatch.
    `concurrency_interval_s`: how often the high-resolution metrics of concurrent calls get a value (AWS: "Amazon
    SageMaker AI metrics in Amazon CloudWatch").
    `instance_idle_s`: a managed instance without copies is kept so long, as others have measured on the service.
    `scale_to_zero`: whether managed instance scaling may have a minimum of 0; regions differ.
    `instance_quotas`: instances for endpoint usage, by type; None gives every type of cohost.hardware.instances one.
    """

    load_wait_s: float = 60
    load_limit_s: float = 360
    invocation_timeout_s: float = 60
    transition_delay_s: float = 0
    alive_interval_s: float = 0.25
    ping_interval_s: float = 5
    ping_failures: int = 3
    replacement_delay_s: float = 30
    drain_limit_s: float = 60
    publish_interval_s: float = 1
    concurrency_interval_s: float = 10
    instance_idle_s: float = 720
    scale_to_zero: bool = True
    instance_quotas: Mapping[str, int] | None = None

    def instance_quota(self, instance_type: str) -> int:
        """Return how many instances of a type all endpoints together may have."""
        if self.instance_quotas is None:
            return _QUOTA_PER_TYPE if instance_type in INSTANCES else 0
        return self.instance_quotas.get(instance_type, 0)


class Quotas:
    """Check requests for instances against the account's limits.

    Args:
        settings: hold the limit of each instance type.
        in_use: counts the instances of all endpoints by type.
    """

    def __init__(self, settings: Settings, in_use: Callable[[], Counter[str]]) -> None:
        self._settings = settings
        self._in_use = in_use

    def check(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Check instance types and how many more of each are wanted.

        Raises:
            ResourceLimitExceeded: there would be more of a type than the account may have.
        """
        used = self._in_use()
        for instance_type, count in wanted:
            quota = self._settings.instance_quota(instance_type)
            if count > 0 and used[instance_type] + count > quota:
                # Quoted in aws/amazon-sagemaker-examples#307.
                raise ResourceLimitExceeded(
                    f"The account-level service limit '{instance_type} for endpoint usage' is {quota} Instances, with "
                    f"current utilization of {used[instance_type]} Instances and a request delta of {count} Instances. "
                    "Please use AWS Service Quotas to request an increase for this quota."
                )
            used[instance_type] += count
