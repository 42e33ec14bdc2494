"""The catalog's sections `monitoring`, `data_capture` and `budget`.

Without `monitoring` there are two alarms: one for an endpoint that is billed and receives no calls, and one for calls
that end with 4xx for several minutes. With `monitoring`, every alarm is on with the default thresholds below; each
threshold can be changed, or its alarm switched off with `false`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from cohost.catalog.sections.rules import EMAIL, EMAIL_CHARACTERS, KMS_KEY, KmsKey, Settings, check_prefix
from cohost.errors import refuse

OFF: Final = "false switches it off"
IDLE_HOURS: Final = 12
"""The default of `idle_hours`: longer than a night without callers, shorter than a weekend."""


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
    """The thresholds of the alarms; `False` switches an alarm off.

    Attributes:
        idle_hours: hours in which an instance was running and no call came in.
        client_errors_percent: share of calls that the container answered with 4xx, in three consecutive periods of five
            minutes.
        server_errors_percent: share of calls that ended with 5xx, in two of three minutes.
        model_errors_percent: share of calls that the container did not answer with success, in two of three minutes.
        model_latency_p99_ms: the container's own time in ms that 1 % of the calls exceed, in three of five minutes.
        gpu_memory_percent: highest use of GPU memory, over ten minutes.
        disk_percent: use of the disk that holds archives and weights, over ten minutes.
        model_loading_wait_seconds: the longest time that a call waited for its model to load (multi-model only), in
            five minutes.
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
"""The alarms of a catalog without `monitoring`: for unnoticed costs, and for failures that /ping does not detect."""


class Monitoring(Settings):
    """The catalog's section `monitoring`: the recipient and the thresholds of the alarms, and the dashboard.

    Attributes:
        email: the address subscribed to the SNS topic of all alarms; its owner has to confirm once. If `email` is None,
            the topic has no subscriber, and the stack's output shows how to subscribe.
        dashboard: true to create a CloudWatch dashboard.
        kms_key: the customer managed key that encrypts the topic; without a key, the topic is not encrypted at rest.
        model_metrics: true to have metrics of each model with `handler: batched` or `shared`; CloudWatch bills each.
        alarms: the thresholds of the alarms.
    """

    email: Annotated[str, Field(pattern=EMAIL, max_length=EMAIL_CHARACTERS)] | None = Field(
        default=None, description="an e-mail address"
    )
    dashboard: bool = Field(default=True, description="true or false")
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
    model_metrics: bool = Field(default=False, description="true or false")
    alarms: Alarms = Field(default_factory=Alarms, description=", ".join(Alarms.model_fields))


DEFAULT_MONITORING: Final = Monitoring(dashboard=False, alarms=UNASKED)


class DataCapture(Settings):
    """The catalog's section `data_capture`: SageMaker writes calls and their answers to S3; off by default.

    Attributes:
        sampling_percentage: percentage of calls that are captured.
        prefix: the prefix of the records in a separate bucket; the endpoint's role may write only below this prefix.
        kms_key: the key that encrypts the records; without a key, the bucket's default encryption applies.
        expire_days: days after which S3 deletes a record.
    """

    sampling_percentage: int = Field(ge=1, le=100, description="1 to 100")
    prefix: Annotated[str, AfterValidator(check_prefix)] = Field(
        default="data-capture/", description="an S3 prefix that ends with / and does not start with /"
    )
    kms_key: KmsKey | None = Field(default=None, description=KMS_KEY)
    expire_days: int = Field(default=30, ge=1, le=3650, description="1 to 3650 days")


class Budget(Settings):
    """The catalog's section `budget`: a monthly cost limit (AWS Budgets) for the resources with the stack's tags.

    A budget does not stop a resource: it only sends notifications to `email` near the limit, up to a day late.
    """

    monthly_usd: float = Field(gt=0, le=1_000_000, description="a number of USD per month above 0")
    email: str = Field(pattern=EMAIL, max_length=EMAIL_CHARACTERS, description="an e-mail address")
