"""The errors of SageMaker's control plane and of InvokeEndpoint, each with the service's code and status.

ServiceFault
├── control plane (JSON 1.1; AWS API reference: "Common Errors" and the errors of each operation)
│   ├── ValidationException, ResourceLimitExceeded, SerializationException, UnknownOperationException
└── runtime (AWS API reference: InvokeEndpoint)
    ├── ValidationError, ModelError, ModelNotReadyException, ServiceUnavailable, InternalFailure
    └── PayloadTooLarge, ThrottlingException

Texts are the service's own where a public report quotes them; each such place names its source.
"""

from __future__ import annotations

from http import HTTPStatus

from local_aws.kit.errors import ServiceFault


class ResourceLimitExceeded(ServiceFault):
    """A request asks for more instances than the account may have."""

    code = "ResourceLimitExceeded"
    status = HTTPStatus.BAD_REQUEST


class ValidationError(ServiceFault):
    """A call of the runtime is wrong, or names an endpoint or model that is not there."""

    code = "ValidationError"
    status = HTTPStatus.BAD_REQUEST


class ModelError(ServiceFault):
    """The container answered with an error, or not at all."""

    code = "ModelError"
    status = HTTPStatus.FAILED_DEPENDENCY


class ModelNotReadyException(ServiceFault):
    """The target model is still being fetched or loaded; the same call will succeed later."""

    code = "ModelNotReadyException"
    status = HTTPStatus.TOO_MANY_REQUESTS


class ServiceUnavailable(ServiceFault):
    """No instance of the variant can take the call at the moment."""

    code = "ServiceUnavailable"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class ThrottlingException(ServiceFault):
    """There are more calls than the service lets through; its message is null (AWS API reference: "Common Errors")."""

    code = "ThrottlingException"
    status = HTTPStatus.BAD_REQUEST


class PayloadTooLarge(ServiceFault):
    """The body of a call is larger than the runtime takes; the real answer has no error type, only its status."""

    code = ""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
