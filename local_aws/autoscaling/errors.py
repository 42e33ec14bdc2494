"""The errors of Application Auto Scaling (API reference: "Common Errors" and the errors of each operation)."""

from __future__ import annotations

from http import HTTPStatus

from local_aws.kit.errors import ServiceFault


class ObjectNotFoundException(ServiceFault):
    """A scalable target, a policy or a scheduled action is not there."""

    code = "ObjectNotFoundException"
    status = HTTPStatus.BAD_REQUEST


class ResourceNotFoundException(ServiceFault):
    """An ARN names no scalable target."""

    code = "ResourceNotFoundException"
    status = HTTPStatus.BAD_REQUEST
