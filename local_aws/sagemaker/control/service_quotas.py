"""Service Quotas for SageMaker: the number of instances of each type that all endpoints may have.

Service Quotas of other services, and SageMaker's other quotas, are not emulated. A quota's name, `<type> for endpoint
usage`, is the one in the text of SageMaker's own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cohost.hardware.instances import INSTANCES
from local_aws.kit.errors import ServiceFault

if TYPE_CHECKING:
    from local_aws.kit.account import Account
    from local_aws.sagemaker.settings import Settings


SERVICE: Final = "service-quotas"
TITLE: Final = "Service Quotas"
PAGE: Final = 100


class NoSuchResourceException(ServiceFault):
    """The service is not one whose quotas are emulated."""

    code = "NoSuchResourceException"
    status = 400


class InvalidPaginationTokenException(ServiceFault):
    """The NextToken does not come from an earlier answer."""

    code = "InvalidPaginationTokenException"
    status = 400


class ServiceQuotas:
    """The quotas of instances for endpoints.

    Args:
        account: the account and region of the quotas.
        settings: hold the quota of each instance type.
    """

    def __init__(self, account: Account, settings: Settings) -> None:
        self._account = account
        self._settings = settings

    async def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """List the quotas, with their applied or their default values; in the emulator both values are the same.

        Raises:
            NoSuchResourceException: the quotas of another service are asked for.
            InvalidPaginationTokenException: the token is not one of an earlier answer.
        """
        if request["ServiceCode"] != "sagemaker":
            raise NoSuchResourceException(f"The emulation has no quotas of service {request['ServiceCode']}")
        token = request.get("NextToken") or "0"
        if not token.isdecimal() or int(token) > len(INSTANCES):
            raise InvalidPaginationTokenException("NextToken is not one that an earlier answer gave")
        start = int(token)
        end = start + int(request.get("MaxResults") or PAGE)
        quotas = [self._quota(number, name) for number, name in enumerate(sorted(INSTANCES))]
        return {"Quotas": quotas[start:end], **({"NextToken": str(end)} if end < len(quotas) else {})}

    def _quota(self, number: int, instance_type: str) -> dict[str, Any]:
        code = f"L-{number:08X}"
        account = self._account
        return {
            "ServiceCode": "sagemaker",
            "ServiceName": "Amazon SageMaker",
            "QuotaArn": f"arn:{account.partition}:servicequotas:{account.region}:{account.account_id}:sagemaker/{code}",
            "QuotaCode": code,
            "QuotaName": f"{instance_type} for endpoint usage",
            "Value": float(self._settings.instance_quota(instance_type)),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
