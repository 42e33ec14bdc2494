"""How many instances endpoints may have together (AWS: "Amazon SageMaker AI endpoints and quotas")."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from local_aws.sagemaker.faults import ResourceLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_aws.sagemaker.endpoint import Endpoint
    from local_aws.sagemaker.registry import Collection
    from local_aws.sagemaker.settings import Settings


class Quotas:
    """Holds requests for instances against the account's limits."""

    def __init__(self, endpoints: Collection[Endpoint], settings: Settings) -> None:
        self._endpoints = endpoints
        self._settings = settings

    def check(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Check instance types and how many more of each are wanted.

        Raises:
            ResourceLimitExceeded: there would be more of a type than the account may have.
        """
        used = self._used()
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

    def _used(self) -> Counter[str]:
        used = Counter[str]()
        for endpoint in self._endpoints:
            for fleet in filter(None, (endpoint.fleet, endpoint.starting)):
                for variant in fleet.variants.values():
                    used[variant.plan.instance_type] += variant.instance_count
        return used
