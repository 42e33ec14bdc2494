"""Settings of the emulated SageMaker, with the real SageMaker's values as defaults, and the check of the quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cohost.hardware.instances import INSTANCES
from local_aws.sagemaker.errors import ResourceLimitExceeded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping


# Enough for any stack of this project. The large GPU types, and instance types that INSTANCES lacks, have quota 0, like
# in a fresh account.
_QUOTA_PER_TYPE = 20
_WITHOUT_QUOTA = ("ml.p4", "ml.p5")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Time limits, intervals and quotas of the emulated SageMaker; names that end in `_s` are in seconds.

    `instance_idle_s` and `concurrency_interval_s` are measured by the emulator's clock (local_aws/kit/clock.py), all
    others in real time.
    `load_wait_s`: maximum wait of a call for its model before ModelNotReadyException (AWS: "Invoke a Multi-Model
    Endpoint").
    `load_limit_s`: maximum duration of fetching and loading a model in the background (AWS: "Invoke a Multi-Model
    Endpoint").
    `invocation_timeout_s`: maximum time until a container answers a call (AWS: "real-time inference" quotas).
    `transition_delay_s`: minimum time that endpoints and components stay in Creating, Updating and Deleting.
    `alive_interval_s`: time between two checks that a container's process runs.
    `ping_interval_s`, `ping_failures`, `replacement_delay_s`: time between two pings of a container, number of pings
    that fail in a row before the container gets no more calls, and time from then until another container starts in its
    place. AWS documents none of these three values; they can be changed while endpoints run
    (local_aws/sagemaker/fault_injection.py).
    `drain_limit_s`: maximum time that running calls get to finish before an old instance is stopped.
    `publish_interval_s`: time between two sendings of metrics and log lines to the embedded CloudWatch.
    `concurrency_interval_s`: time between two values of the high-resolution metrics of concurrent calls (AWS: "Amazon
    SageMaker AI metrics in Amazon CloudWatch").
    `instance_idle_s`: time for which a managed instance without copies is kept, as others have measured on SageMaker.
    `scale_to_zero`: True if the region lets managed instance scaling have a minimum of 0; SageMaker's regions differ.
    `instance_quotas`: number of instances that endpoints may use, by instance type; None means 20 of every type of
    cohost.hardware.instances, and none of ml.p4 and ml.p5.
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
        """Return the number of instances of a type that all endpoints together may have."""
        if self.instance_quotas is None:
            known = instance_type in INSTANCES and not instance_type.startswith(_WITHOUT_QUOTA)
            return _QUOTA_PER_TYPE if known else 0
        return self.instance_quotas.get(instance_type, 0)


class Quotas:
    """Check requests for instances against the account's quotas.

    Args:
        settings: hold the quota of each instance type.
        in_use: counts the instances of all endpoints by type.
    """

    def __init__(self, settings: Settings, in_use: Callable[[], Counter[str]]) -> None:
        self._settings = settings
        self._in_use = in_use

    def check(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Check that the quotas allow further instances; `wanted` has pairs of an instance type and a number.

        Raises:
            ResourceLimitExceeded: the account would have more instances of a type than its quota.
        """
        used = self._in_use()
        for instance_type, count in wanted:
            quota = self._settings.instance_quota(instance_type)
            if count > 0 and used[instance_type] + count > quota:
                # The text is quoted in aws/amazon-sagemaker-examples#307.
                raise ResourceLimitExceeded(
                    f"The account-level service limit '{instance_type} for endpoint usage' is {quota} Instances, with "
                    f"current utilization of {used[instance_type]} Instances and a request delta of {count} Instances. "
                    "Please use AWS Service Quotas to request an increase for this quota."
                )
            used[instance_type] += count
