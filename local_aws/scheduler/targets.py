"""The targets of schedules: an SNS topic, or any API operation of an emulated service ("universal target").

AWS: EventBridge Scheduler user guide, "Using universal targets": `arn:aws:scheduler:::aws-sdk:SERVICE:ACTION`, where
SERVICE is the SDK's name of the service in lower case without hyphens. The target's `Input` has the parameters of the
request.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from botocore import xform_name

from local_aws.kit.errors import ValidationException, not_emulated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_UNIVERSAL: Final = re.compile(r"arn:aws[\w-]*:scheduler:::aws-sdk:([a-z0-9]+):([a-zA-Z0-9]+)")
_TOPIC: Final = re.compile(r"arn:aws[\w-]*:sns:[\w-]+:\d{12}:[\w.-]+")
# Services whose name in boto3 has a hyphen that a target's ARN lacks.
_HYPHENATED: Final[Mapping[str, str]] = {"applicationautoscaling": "application-autoscaling"}
_READS: Final = ("get", "describe", "list", "batchget", "select", "search", "poll", "receive", "scan", "query")


class TargetError(ValidationException):
    """The error for a target that EventBridge Scheduler would reject, or that this emulation cannot call."""


def check_target(target: Mapping[str, Any]) -> None:
    """Check that a target can be called.

    Raises:
        TargetError: the kind of ARN is not emulated, the action only reads, or the input is not a JSON object.
    """
    arn = str(target["Arn"])
    if _TOPIC.fullmatch(arn):
        return
    found = _UNIVERSAL.fullmatch(arn)
    if found is None:
        allowed = "a topic, or arn:aws:scheduler:::aws-sdk:…"
        raise TargetError(not_emulated(f"Target.Arn {arn}", "EventBridge Scheduler", allowed=allowed))
    if found[2].lower().startswith(_READS):
        raise TargetError(f"Target.Arn {arn}: an action that only reads; allowed: one that changes something")
    _parameters(target)


def invoke(target: Mapping[str, Any], client_of: Callable[[str, str], Any], region: str) -> None:
    """Call a target; `client_of` returns a client for a service and region that signs with the role's key.

    Raises:
        ClientError: the service rejected the call.
        TargetError: `check_target` rejects the target, or the service has no such action.
    """
    check_target(target)
    arn = str(target["Arn"])
    if _TOPIC.fullmatch(arn):
        client_of("sns", region).publish(TopicArn=arn, Message=str(target.get("Input", "{}")))
        return
    _, _, tail = arn.partition("aws-sdk:")
    service, _, action = tail.partition(":")
    client: Any = client_of(_HYPHENATED.get(service, service), region)
    method = xform_name(action)
    # A client has other attributes than its API actions, and these must not be called.
    if method not in client.meta.method_to_api_mapping:
        raise TargetError(
            f"Target.Arn {arn}: {service} has no action {action}; fix: write the API's name in camel case"
        )
    getattr(client, method)(**_parameters(target))


def _parameters(target: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = json.loads(str(target.get("Input", "{}")))
    except ValueError as error:
        raise TargetError(f"Target.Input: is not JSON ({error}); allowed: a JSON object") from error
    if not isinstance(parameters, dict):
        raise TargetError("Target.Input: is not a JSON object; allowed: the parameters of the action by name")
    return parameters
