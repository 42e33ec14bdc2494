"""Reads and checks a call of an endpoint: header fields, target and body (AWS API reference: InvokeEndpoint).

Texts and codes: aws/amazon-sagemaker-examples#1216 (target model not supported), #1026,
aws/sagemaker-tensorflow-serving-container#166 (target model missing), aws/sagemaker-python-sdk#171 (body too large),
BerriAI/litellm#37766 (component name missing, not allowed).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from local_aws.kit.errors import ValidationException
from local_aws.kit.validation import check_value, service_model
from local_aws.sagemaker.errors import PayloadTooLarge, ValidationError

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
    """Check the header fields that the operation's model describes.

    Raises:
        ValidationError: one of them is too long, has characters that it may not have, or asks for a feature that the
            emulation does not have.
    """
    for name, header, shape in _header_members():
        if (value := headers.get(header)) is not None:
            try:
                check_value(shape, value, path=name)
            except ValidationException as fault:
                raise ValidationError(fault.message) from None
    for header, member in _UNSUPPORTED.items():
        if header in headers:
            raise ValidationError(f"{member} is not part of this emulation of SageMaker")


def component_name(headers: Mapping[str, str]) -> str:
    """The inference component that a call is for, on an endpoint made of components.

    Raises:
        ValidationError: it is missing, or a model is named in the way of multi-model endpoints.
    """
    if (name := headers.get(INFERENCE_COMPONENT)) is None:
        raise ValidationError(
            "Inference Component Name header is required for endpoints to which you plan to deploy inference "
            "components. Please include Inference Component Name header or consider using SageMaker models.",
            ErrorCode="INFERENCE_COMPONENT_NAME_MISSING",
        )
    return name


def target_model(endpoint_name: str, headers: Mapping[str, str], request_id: str, *, multi_model: bool) -> str | None:
    """The model that a call is for, relative to the endpoint's ModelDataUrl; None on an endpoint with one model.

    Raises:
        ValidationError: it is missing, or not wanted, or leads out of the prefix; or a component is named.
    """
    if INFERENCE_COMPONENT in headers:
        raise ValidationError(
            "Inference Component Name header is not allowed for endpoints to which you dont plan to deploy inference "
            "components. Please remove the Inference Component Name header and try again.",
            ErrorCode="INFERENCE_COMPONENT_NAME_NOT_ALLOWED",
        )
    target = headers.get(TARGET_MODEL)
    if not multi_model:
        refuse_target_model(endpoint_name, headers)
        return None
    if target is None:
        raise ValidationError(
            f"Request {request_id} is missing a target model header.", ErrorCode="TARGET_MODEL_HEADER_MISSING"
        )
    if ".." in target.split("/") or not target.strip("/"):
        raise ValidationError(
            f"TargetModel {target} must be the path of an archive below the endpoint's ModelDataUrl, without '..'"
        )
    return target


def refuse_target_model(endpoint_name: str, headers: Mapping[str, str]) -> None:
    """Raise ValidationError if a call names a target model, for an endpoint that has none."""
    if TARGET_MODEL in headers:
        raise ValidationError(
            f"Endpoint {endpoint_name} is not a multi-model endpoint and does not support target model header.",
            ErrorCode="TARGET_MODEL_HEADER_NOT_SUPPORTED",
        )


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The header fields that the container gets to see."""
    return {name: headers[name] for name in _PASSED_ON if name in headers}


async def read_body(request: Request) -> bytes:
    """The body of a call.

    Raises:
        PayloadTooLarge: it is longer than InvokeEndpoint takes.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
    return bytes(body)


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"HTTP content length exceeded {MAX_BODY_BYTES} bytes.")


@cache
def _header_members() -> tuple[tuple[str, str, Shape], ...]:
    shape = service_model("sagemaker-runtime").operation_model("InvokeEndpoint").input_shape
    members = {} if shape is None else shape.members
    return tuple(
        (name[:1].lower() + name[1:], member.serialization["name"].lower(), member)
        for name, member in members.items()
        if member.serialization.get("location") == "header"
    )
