"""The errors of Application Auto Scaling (API reference: "Common Errors" and the errors of each operation)."""

from __future__ import annotations

from http import HTTPStatus

from local_aws.kit.errors import ServiceFault


class ObjectNotFoundException(ServiceFault):
    """The error for a scalable target, a policy or a scheduled action that does not exist."""

    code = "ObjectNotFoundException"
    status = HTTPStatus.BAD_REQUEST


class ResourceNotFoundException(ServiceFault):
    """The error for an ARN that no scalable target has."""

    code = "ResourceNotFoundException"
    status = HTTPStatus.BAD_REQUEST
