"""Monitoring of the endpoint: recipients, alarms, the dashboard, captured data, the budget.

Without the section there are two alarms: one for an endpoint that is billed and receives no calls, one for calls that
end with 4xx for minutes on end. With the section, every alarm is on with the thresholds below; each threshold can be
changed, or the alarm switched off with `false`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from cohost.catalog.sections.rules import EMAIL, EMAIL_CHARACTERS, KMS_KEY, KmsKey, Settings, check_prefix
from cohost.errors import refuse

OFF: Final = "false switches it off"
IDLE_HOURS: Final = 12
"""Longer than a night without callers, shorter than a weekend."""


def _only_false(value: bool) -> bool:  # noqa: FBT001 - a validator takes the value
    if value:
        allowed, fix = f"a threshold; {OFF}", "write the threshold, or leave the key out"
        refuse("value-not-allowed", "got True", allowed=allowed, fix=fix)
    return value


# A strict bool instead of Literal[False], which would accept 0: a threshold of 0 is a mistake and does not mean "off".
Off = Annotated[bool, AfterValidator(_only_false)]
Percent = Annotated[float, Field(gt=0, le=100)]

_PERCENT: Final = f"a percentage above 0, up to 100; {OFF}"


class Alarms(Settings):
    """The threshold of each alarm; `False` switches the alarm off.

    Attributes:
        idle_hours: hours in which an instance was running and no call came in.
        client_errors_percent: share of calls that the container answered with 4xx, in three consecutive periods of five
            minutes.
        server_errors_percent: share of calls that ended with 5xx, in two of three minutes.
        model_errors_percent: share of calls that the container did not answer with success, in two of three minutes.
        model_latency_p99_ms: the container's own time that 1 % of the calls exceed, in three of five minutes.
        gpu_memory_percent: highest use of GPU memory, over ten minutes.
        disk_percent: use of the disk that holds archives and weights, over ten minutes.
        model_loading_wait_seconds: the longest that a call waited for its model (multi-model only), in five minutes.
    """

    # CloudWatch evaluates at most seven days if the period is an hour (API reference: PutMetricAlarm).
    idle_hours: Annotated[int, Field(ge=1, le=168)] | Off = Field(
        default=IDLE_HOURS, description=f"1 to 168 hours; {OFF}"
    )
    client_errors_percent: Percent | Off = Field(default=10.0, description=_PERCENT)
    server_errors_percent: Percent | Off = Field(default=1.0, description=_PERCENT)
    model_errors_percent: Percent | Off = Field(default=5.0, description=_PERCENT)
    model_latency_p99_ms: Annotated[float, Field(gt=0, le=60_000)] | Off = Field(
        default=2000.0, description=f"milliseconds above 0, up to 60000, where a call times out; {OFF}"
    )
    gpu_memory_percent: Percent | Off = Field(default=95.0, description=_PERCENT)
    disk_percent: Percent | Off = Field(default=85.0, description=_PERCENT)
    model_loading_wait_seconds: Annotated[float, Field(gt=0, le=360)] | Off = Field(
        default=60.0, description=f"seconds above 0, up to 360, where loading is given up; {OFF}"
    )


UNASKED: Final = Alarms(
    server_errors_percent=False,
    model_errors_percent=False,
    model_latency_p99_ms=False,
    gpu_memory_percent=False,
    disk_percent=False,
    model_loading_wait_seconds=False,
)
"""The alarms of a catalog without `monitoring`: unnoticed costs, and failures that no ping detects."""


class Monitoring(Settings):
    """The recipients of alarms, their thresholds and the dashboard.

    Attributes:
        email: address subscribed to the topic of all alarms; each address has to confirm once. None leaves the topic
            without a subscriber; the stack's output then shows how to subscribe.
        dashboard: true to create a CloudWatch dashboard.
        kms_key: the customer managed key that encrypts the topic. None: not encrypted at rest.
        alarms: the thresholds.
    """

    email: Annotated[str, Field(pattern=EMAIL, max_length=EMAIL_CHARACTERS)] | None = Field(
        default=None, description="an e-mail address"
    )
    dashboard: bool = Field(default=True, description="true or false")
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
    alarms: Alarms = Field(default_factory=Alarms, description=", ".join(Alarms.model_fields))


DEFAULT_MONITORING: Final = Monitoring(dashboard=False, alarms=UNASKED)


class DataCapture(Settings):
    """Calls and answers written to S3 as they come in (SageMaker data capture); off by default.

    Attributes:
        sampling_percentage: percentage of calls that are captured.
        prefix: prefix in a separate bucket; the endpoint's role may write only there.
        kms_key: the key that encrypts the records. None: the bucket's own encryption.
        expire_days: days after which S3 deletes a record.
    """

    sampling_percentage: int = Field(ge=1, le=100, description="1 to 100")
    prefix: Annotated[str, AfterValidator(check_prefix)] = Field(
        default="data-capture/", description="an S3 prefix that ends with / and does not start with it"
    )
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
    expire_days: int = Field(default=30, ge=1, le=3650, description="1 to 3650 days")


class Budget(Settings):
    """A monthly cost limit for resources with the stack's tags, and the address to notify near it (AWS Budgets).

    A budget stops nothing: it only sends notifications, up to a day late.
    """

    monthly_usd: float = Field(gt=0, le=1_000_000, description="USD a month above 0")
    email: str = Field(pattern=EMAIL, max_length=EMAIL_CHARACTERS, description="an e-mail address")
