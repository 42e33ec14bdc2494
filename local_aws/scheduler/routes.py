"""The HTTP interface of EventBridge Scheduler: check requests, pass them to moto, and run the schedules.

AWS checks a schedule at its creation and update (API reference: CreateSchedule, ValidationException); moto does not.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool

from local_aws.gateway import read_body, replay
from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.kit.clock import check_schedule
from local_aws.kit.errors import ServiceFault, ValidationException
from local_aws.kit.json_protocol import read_members, request_id, runtime_fault
from local_aws.kit.validation import check_request
from local_aws.moto_services import role_policies
from local_aws.rights.judge import service_may_assume
from local_aws.scheduler.runner import ScheduleRunner
from local_aws.scheduler.targets import check_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from local_aws.gateway import CredentialScope
    from local_aws.kit.access_keys import AccessKeys
    from local_aws.kit.clients import Clients


_SCHEDULE: Final = re.compile(r"/schedules/(?P<name>[^/]+)/?")
_CHECKED: Final[Mapping[str, str]] = {"POST": "CreateSchedule", "PUT": "UpdateSchedule"}
_DEFAULT_TIMEZONE: Final = "UTC"
DEFAULT_GROUP: Final = "default"
_SERVICE: Final = "scheduler.amazonaws.com"
# EventBridge Scheduler's text (aws/aws-sdk-js-v3#6494).
_UNTRUSTED: Final = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."


class Scheduler:
    """EventBridge Scheduler; `asgi` answers its requests, which are signed for the service `scheduler`.

    Args:
        others: moto's application, which keeps schedules and groups.
        clients: boto3 clients that call the emulator, for the schedules' targets.
        keys: makes the access keys of the schedules' roles.
        now: the emulation's clock in seconds since 1970; left out, the machine's.
    """

    def __init__(
        self, *, others: ASGIApp, clients: Clients, keys: AccessKeys, now: Callable[[], float] = time.time
    ) -> None:
        self._others = others
        self._runner = ScheduleRunner(clients=clients, keys=keys, now=now, is_assumable=is_assumable)

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: reject an invalid schedule, or pass the request to moto and reread the schedules."""
        body = await read_body(receive)
        rejection = _rejection(scope, body) or await run_in_threadpool(_role_rejection, scope, body)
        if rejection is not None:
            await rejection(scope, replay(b""), send)
            return
        await self._others(scope, replay(body), send)
        signed: CredentialScope | None = scope.get("aws_scope")
        if scope["method"] != "GET" and signed is not None:
            self._runner.reload(signed.region)

    def start(self) -> None:
        """Start the thread that runs the schedules."""
        self._runner.start()

    def stop(self) -> None:
        """Stop running schedules; do not wait for a call of a target that is in progress."""
        self._runner.stop()


def _rejection(scope: Scope, body: bytes) -> Response | None:
    """Return the error answer to an invalid CreateSchedule or UpdateSchedule; None for a valid or another request."""
    found, operation = _SCHEDULE.fullmatch(scope["path"]), _CHECKED.get(scope["method"])
    if found is None or operation is None:
        return None
    try:
        _check_schedule_request(operation, {**read_members(body), "Name": found["name"]})
    except ServiceFault as fault:
        return runtime_fault(fault, request_id())
    return None


def _role_rejection(scope: Scope, body: bytes) -> Response | None:
    """Return the error answer if a schedule's role does not trust EventBridge Scheduler; otherwise None."""
    signed: CredentialScope | None = scope.get("aws_scope")
    if signed is None or _SCHEDULE.fullmatch(scope["path"]) is None or scope["method"] not in _CHECKED:
        return None
    request = read_members(body)
    group = str(request.get("GroupName") or DEFAULT_GROUP)
    if is_assumable(str(request["Target"]["RoleArn"]), signed.region, group):
        return None
    return runtime_fault(ValidationException(_UNTRUSTED), request_id())


def is_assumable(role: str, region: str, group: str) -> bool:
    """Return True if a schedule's role lets EventBridge Scheduler assume it for the schedule's group.

    Source of the condition keys: EventBridge Scheduler user guide, "Confused deputy prevention".
    """
    group_arn = f"arn:{PARTITION}:scheduler:{region}:{ACCOUNT_ID}:schedule-group/{group}"
    return service_may_assume(role_policies(role), role, _SERVICE, {"aws:sourcearn": [group_arn]})


def _check_schedule_request(operation: str, request: dict[str, Any]) -> None:
    """Check a request of CreateSchedule or UpdateSchedule.

    Raises:
        SerializationException: a member is of another JSON type than the operation takes.
        ValidationException: the service would reject the expression, the time zone, the target or another member.
    """
    check_request(operation, request, service="scheduler", title="EventBridge Scheduler")
    check_schedule(request["ScheduleExpression"], request.get("ScheduleExpressionTimezone") or _DEFAULT_TIMEZONE)
    check_target(request["Target"])
