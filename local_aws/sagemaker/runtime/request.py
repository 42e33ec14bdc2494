"""The request of InvokeEndpoint: its header fields, its target and its body (AWS API reference: InvokeEndpoint)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from local_aws.kit.errors import ValidationException
from local_aws.kit.validation import check_value, service_model
from local_aws.sagemaker import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import Shape
    from starlette.requests import Request


MAX_BODY_BYTES = 6_291_456
TARGET_MODEL = "x-amzn-sagemaker-target-model"
TARGET_VARIANT = "x-amzn-sagemaker-target-variant"
CUSTOM_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
INFERENCE_COMPONENT = "x-amzn-sagemaker-inference-component"

_UNSUPPORTED = {
    "x-amzn-sagemaker-target-container-hostname": "TargetContainerHostname",
    "x-amzn-sagemaker-session-id": "SessionId",
    "x-amzn-sagemaker-enable-explanations": "EnableExplanations",
}
_PASSED_ON = ("content-type", "accept", CUSTOM_ATTRIBUTES, TARGET_MODEL, "x-amzn-sagemaker-inference-id")


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the header fields of a call against botocore's description of InvokeEndpoint.

    Raises:
        ValidationError: a header field is too long, contains a character that is not allowed, or requires a feature
            that the emulation does not have.
    """
    for name, header, shape in _header_members():
        if (value := headers.get(header)) is not None:
            try:
                check_value(shape, value, path=name)
            except ValidationException as fault:
                raise errors.ValidationError(fault.message) from None
    for header, member in _UNSUPPORTED.items():
        if header in headers:
            raise errors.not_emulated(member)


def component_name(headers: Mapping[str, str]) -> str:
    """Return the name of the inference component that a call is for, on an endpoint with components.

    Raises:
        ValidationError: the call names no inference component.
    """
    if (name := headers.get(INFERENCE_COMPONENT)) is None:
        raise errors.component_name_missing()
    return name


def target_model(endpoint_name: str, headers: Mapping[str, str], request_id: str, *, multi_model: bool) -> str | None:
    """Return the TargetModel of a call, a path below the ModelDataUrl; None on an endpoint with one model.

    Raises:
        ValidationError: TargetModel is missing on a multi-model endpoint, is present on another endpoint, or leads out
            of the ModelDataUrl; or the call names an inference component.
    """
    if INFERENCE_COMPONENT in headers:
        raise errors.component_name_not_allowed()
    target = headers.get(TARGET_MODEL)
    if not multi_model:
        refuse_target_model(endpoint_name, headers)
        return None
    if target is None:
        raise errors.target_model_missing(request_id)
    if ".." in target.split("/") or not target.strip("/"):
        raise errors.target_model_outside(target)
    return target


def refuse_target_model(endpoint_name: str, headers: Mapping[str, str]) -> None:
    """Raise ValidationError if a call of an endpoint that is not multi-model has a TargetModel."""
    if TARGET_MODEL in headers:
        raise errors.target_model_not_supported(endpoint_name)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header fields of a call that are passed on to the container."""
    return {name: headers[name] for name in _PASSED_ON if name in headers}


async def read_body(request: Request) -> bytes:
    """Read the body of a call.

    Raises:
        PayloadTooLarge: the body is longer than InvokeEndpoint takes.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise errors.payload_too_large(MAX_BODY_BYTES)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise errors.payload_too_large(MAX_BODY_BYTES)
    return bytes(body)


@cache
def _header_members() -> tuple[tuple[str, str, Shape], ...]:
    shape = service_model("sagemaker-runtime").operation_model("InvokeEndpoint").input_shape
    members = {} if shape is None else shape.members
    return tuple(
        (name[:1].lower() + name[1:], member.serialization["name"].lower(), member)
        for name, member in members.items()
        if member.serialization.get("location") == "header"
    )
