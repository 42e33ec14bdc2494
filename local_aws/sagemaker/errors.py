"""The errors of the emulated SageMaker: of its control plane, of InvokeEndpoint, and of their background tasks.

ServiceFault (local_aws.kit.errors), an answer with the service's code and status
├── control plane (JSON 1.1; AWS API reference: "Common Errors" and the errors of each operation)
│   ├── ResourceLimitExceeded
│   └── ValidationException, SerializationException, UnknownOperationException (local_aws.kit.errors)
└── InvokeEndpoint (AWS API reference: InvokeEndpoint of Amazon SageMaker AI Runtime)
    ├── ValidationError, ModelError, ModelNotReadyException, ServiceUnavailable
    ├── PayloadTooLarge, ThrottlingException
    └── InternalFailure (local_aws.kit.errors)
Exception, which is converted before a caller gets it
├── DeploymentError: becomes the FailureReason of an endpoint or a component
└── ModelLoadError: becomes a ModelError

Every error of InvokeEndpoint is made by a function below. Where a public report, such as a GitHub issue, quotes
SageMaker's text of an error, the error has this text, and the error's function names the report. The other texts are
the emulator's own.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from local_aws.kit import errors as kit
from local_aws.kit.errors import ServiceFault, ValidationException

if TYPE_CHECKING:
    from local_aws.kit.account import Account


_FIRST_SERVER_ERROR = 500


class DeploymentError(Exception):
    """The creation or update of an endpoint or component cannot be completed; the text becomes its FailureReason."""


class ModelLoadError(Exception):
    """A container did not load a model; `status` and `text` are the container's answer, status 0 means no answer."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)


class ResourceLimitExceeded(ServiceFault):
    """A request needs more instances than the account's quota allows."""

    code = "ResourceLimitExceeded"
    status = HTTPStatus.BAD_REQUEST


class ValidationError(ServiceFault):
    """A call of InvokeEndpoint is invalid, or names an endpoint or a model that does not exist."""

    code = "ValidationError"
    status = HTTPStatus.BAD_REQUEST


class ModelError(ServiceFault):
    """The model's container answered a call with an error, or not at all."""

    code = "ModelError"
    status = HTTPStatus.FAILED_DEPENDENCY


class ModelNotReadyException(ServiceFault):
    """The target model of a call is still being fetched or loaded; the same call can succeed later."""

    code = "ModelNotReadyException"
    status = HTTPStatus.TOO_MANY_REQUESTS


class ServiceUnavailable(ServiceFault):
    """No container of the variant or component can take the call at the moment."""

    code = "ServiceUnavailable"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class ThrottlingException(ServiceFault):
    """There are more calls than SageMaker lets through; the error's message is null (AWS: "Common Errors")."""

    code = "ThrottlingException"
    status = HTTPStatus.BAD_REQUEST


class PayloadTooLarge(ServiceFault):
    """The body of a call is larger than InvokeEndpoint accepts; SageMaker's answer has status 413 and no error type."""

    code = ""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def unsupported(feature: str) -> ValidationException:
    """Refuse a feature of the control plane that the emulator does not have."""
    return ValidationException(kit.not_emulated(feature, "SageMaker", fix="leave it out to deploy here"))


# InvokeEndpoint: the request


def not_emulated(feature: str, *, allowed: str = "") -> ValidationError:
    """Refuse a feature or an operation of the runtime that the emulator does not have."""
    return ValidationError(kit.not_emulated(feature, "SageMaker's runtime", allowed=allowed))


def payload_too_large(limit_bytes: int) -> PayloadTooLarge:
    """Refuse a call whose body is over the limit (text: aws/sagemaker-python-sdk#171)."""
    return PayloadTooLarge(f"HTTP content length exceeded {limit_bytes} bytes.")


def endpoint_not_found(name: str, account_id: str) -> ValidationError:
    """Report an endpoint that does not exist or does not serve calls (text: aws/amazon-sagemaker-examples#293)."""
    return ValidationError(f"Endpoint {name} of account {account_id} not found.", ErrorCode="NO_SUCH_ENDPOINT")


def variant_not_found(name: str) -> ValidationError:
    """Report a TargetVariant that the endpoint does not have."""
    return ValidationError(f"Variant {name} not found for Request")


def target_model_missing(request_id: str) -> ValidationError:
    """Report a call of a multi-model endpoint without TargetModel.

    Text: aws/sagemaker-tensorflow-serving-container#166, aws/amazon-sagemaker-examples#1026.
    """
    return ValidationError(
        f"Request {request_id} is missing a target model header.", ErrorCode="TARGET_MODEL_HEADER_MISSING"
    )


def target_model_not_supported(endpoint_name: str) -> ValidationError:
    """Report a TargetModel for an endpoint that is not multi-model (text: aws/amazon-sagemaker-examples#1216)."""
    return ValidationError(
        f"Endpoint {endpoint_name} is not a multi-model endpoint and does not support target model header.",
        ErrorCode="TARGET_MODEL_HEADER_NOT_SUPPORTED",
    )


def target_model_outside(target: str) -> ValidationError:
    """Reject a TargetModel that is not a path below the endpoint's ModelDataUrl."""
    return ValidationError(
        f"TargetModel {target} must be the path of an archive below the endpoint's ModelDataUrl, without '..'"
    )


def component_name_missing() -> ValidationError:
    """Report a call that names no component to an endpoint with components (text: BerriAI/litellm#37766)."""
    return ValidationError(
        "Inference Component Name header is required for endpoints to which you plan to deploy inference "
        "components. Please include Inference Component Name header or consider using SageMaker models.",
        ErrorCode="INFERENCE_COMPONENT_NAME_MISSING",
    )


def component_name_not_allowed() -> ValidationError:
    """Report a call that names a component to an endpoint without components (text: BerriAI/litellm#37766)."""
    return ValidationError(
        "Inference Component Name header is not allowed for endpoints to which you dont plan to deploy inference "
        "components. Please remove the Inference Component Name header and try again.",
        ErrorCode="INFERENCE_COMPONENT_NAME_NOT_ALLOWED",
    )


def component_not_found(name: str, endpoint_name: str) -> ValidationError:
    """Report a component that the endpoint does not have."""
    return ValidationError(f"Inference Component {name} of endpoint {endpoint_name} not found.")


def component_on_other_variant(name: str, variant_name: str) -> ValidationError:
    """Report a call that names a component, and as its TargetVariant a variant that does not have the component."""
    return ValidationError(f"Inference Component {name} is not on variant {variant_name}.")


# InvokeEndpoint: instances, copies and models


def throttled() -> ThrottlingException:
    """Refuse a call because more calls arrive than SageMaker lets through."""
    return ThrottlingException(None)


def unavailable_on_request() -> ServiceUnavailable:
    """Refuse a call because of the fault switch `unavailable_calls` (local_aws/sagemaker/fault_injection.py)."""
    return ServiceUnavailable("ServiceUnavailable was asked for with a fault switch; retry the request")


def no_instance_ready(owner: str) -> ServiceUnavailable:
    """Report that no container of `owner`, a variant or component, can take the call."""
    return ServiceUnavailable(f"No instance of {owner} is ready; retry the request")


def no_component_capacity() -> ValidationError:
    """Return the error of a call to a component without copies; AWS's blog on scaling to zero quotes its message."""
    return ValidationError(
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
        "in-progress (if configured) or try to increase the capacity by invoking "
        "UpdateInferenceComponentRuntimeConfig API."
    )


def model_not_ready(waited_s: float) -> ModelNotReadyException:
    """Report that the target model is not loaded after the call waited `waited_s` seconds."""
    return ModelNotReadyException(
        f"The model is still being downloaded or loaded after {waited_s:g} seconds. Retry the request."
    )


def model_data_unavailable(action: str, bucket: str, key: str, requirement: str) -> ValidationError:
    """Report that `action`, download or extract, failed for a model archive; `requirement` is its precondition."""
    return ValidationError(
        f"Failed to {action} model data(bucket: {bucket}, key: {key}). Please ensure that {requirement}.",
        ErrorCode="MODEL_DATA_DOWNLOAD_FAILED",
    )


def load_timed_out(limit_s: float) -> ModelLoadError:
    """Report that the load of a model was given up after its time limit."""
    return ModelLoadError(0, f"not loaded within {limit_s:g} seconds")


def container_ended() -> ModelLoadError:
    """Report a container that ended while a call waited for a model in it."""
    return ModelLoadError(0, "Container primary ended before the model was loaded; it is started again.")


# InvokeEndpoint: the container's answer


def model_error(status: int, text: str, *, log_group: str, account: Account) -> ModelError:
    """Make the error for a call that the container answered with an error, or did not answer (status 0).

    Text: aws/sagemaker-python-sdk#2955; members: aws/sagemaker-tensorflow-serving-container#109.
    """
    side = "client" if 0 < status < _FIRST_SERVER_ERROR else "server"
    return ModelError(
        f'Received {side} error ({status}) from primary with message "{text}". '
        f"See {account.log_group_page(log_group)} in account {account.account_id} for more information.",
        ErrorCode="CLIENT_ERROR_FROM_MODEL" if side == "client" else "INTERNAL_FAILURE_FROM_MODEL",
        OriginalStatusCode=status,
        OriginalMessage=text,
        LogStreamArn=account.log_group_arn(log_group),
    )


def invocation_timed_out(*, log_group: str, account: Account) -> ModelError:
    """Make the error of a call that the container did not answer in time (text: aws/amazon-sagemaker-examples#3089)."""
    text = (
        "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
        "each container in Amazon CloudWatch, resolve the issue, and try again."
    )
    return model_error(0, text, log_group=log_group, account=account)


def no_response(endpoint_name: str, *, log_group: str, account: Account) -> ModelError:
    """Make the error for a call whose connection to the container broke (text: aws/amazon-sagemaker-examples#3089)."""
    text = (
        f"Amazon SageMaker could not get a response from the {endpoint_name} endpoint. This can occur when CPU or "
        "memory utilization is high. To check your utilization, see Amazon CloudWatch. To fix this problem, use an "
        "instance type with more CPU capacity or memory."
    )
    return model_error(0, text, log_group=log_group, account=account)
