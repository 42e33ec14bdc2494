"""Read a signed request's operation, and the actions, resources and condition keys that IAM evaluates for it.

Source: Service Authorization Reference (actions, resource types and condition keys of each service). An operation that
is missing in this module's tables counts as the action `service:Operation` on the resource `*`. A policy that names
resources does not allow `*`, so the emulation is never more permissive than AWS.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree as ET

import botocore.session

from local_aws.kit.account import ACCOUNT_ID, PARTITION
from local_aws.rights.policies import Request
from local_aws.rights.resource_arns import TAGGED_AT_CREATION, Call, has_tags, resources_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_REST_MODELS: Final[Mapping[str, str]] = {"sagemaker": "sagemaker-runtime"}
"""botocore's names of services with REST operations, by signing name, where the two differ."""

_PREFIXES: Final[Mapping[str, str]] = {"monitoring": "cloudwatch", "service-quotas": "servicequotas"}
"""The prefixes of services' IAM actions, by signing name, where the two differ."""


def has_judged_body(service: str, query: str) -> bool:
    """Return True if a request's body may name the resources to check; False for S3 uploads, which stay unread."""
    return service != "s3" or "delete" in parse_qs(query, keep_blank_values=True)


def read_call(
    service: str, region: str, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> Call:
    """Return a request's operation and parameters; `path` and `query` are still encoded, header names in lower case."""
    if service == "s3":
        return _s3_call(region, method, path, query, headers, body)
    if target := headers.get("x-amz-target"):
        return Call(service=service, region=region, operation=target.rpartition(".")[2], parameters=_json(body))
    form = parse_qs(query, keep_blank_values=True)
    if "json" not in headers.get("content-type", ""):
        form |= parse_qs(body.decode("latin-1"), keep_blank_values=True)
    if "Action" in form:
        parameters = {name: values[0] for name, values in form.items()}
        return Call(service=service, region=region, operation=form["Action"][0], parameters=parameters)
    operation, labels = _rest_operation(service, method, path)
    asked = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    named = {member: asked[name] for name, member in _query_members(service, operation).items() if name in asked}
    return Call(service=service, region=region, operation=operation, parameters={**_json(body), **named, **labels})


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body) if body else {}
    except ValueError:
        return {}  # the service itself answers that it cannot parse the body
    return content if isinstance(content, dict) else {}


@cache
def _rest_routes(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    model = botocore.session.get_session().get_service_model(_REST_MODELS.get(service, service))
    routes = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        pattern = re.sub(r"\\\{(\w+)(\\\+)?\\\}", _label, re.escape(str(http["requestUri"]).partition("?")[0]))
        routes.append((str(http["method"]), re.compile(pattern + "/?"), name))
    # The pattern with the most literal text is the most specific one.
    return sorted(routes, key=lambda route: len(re.sub(r"\(.*?\)", "", route[1].pattern)), reverse=True)


@cache
def _query_members(service: str, operation: str) -> dict[str, str]:
    """Return the input members that a REST operation takes from the query string, by their names in the query."""
    model = botocore.session.get_session().get_service_model(_REST_MODELS.get(service, service))
    shape = model.operation_model(operation).input_shape if operation in model.operation_names else None
    return {
        str(member.serialization.get("name", name)): name
        for name, member in (() if shape is None else shape.members.items())
        if member.serialization.get("location") == "querystring"
    }


def _label(found: re.Match[str]) -> str:
    return f"(?P<{found[1]}>.+)" if found[2] else f"(?P<{found[1]}>[^/]+)"


def _rest_operation(service: str, method: str, path: str) -> tuple[str, dict[str, str]]:
    for verb, pattern, name in _rest_routes(service):
        if verb == method and (match := pattern.fullmatch(path)) is not None:
            return name, {label: unquote(text) for label, text in match.groupdict().items()}
    return f"{method} {path}", {}


_S3_OBJECT: Final[Mapping[str, str]] = {
    "GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "POST": "PostObject", "DELETE": "DeleteObject",
}  # fmt: skip
_S3_BUCKET: Final[Mapping[str, str]] = {
    "GET": "ListObjects", "HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket",
}  # fmt: skip
_S3_MARKED: Final[Mapping[tuple[str, str], str]] = {
    ("GET", "list-type"): "ListObjectsV2", ("GET", "versions"): "ListObjectVersions",
    ("POST", "delete"): "DeleteObjects", ("POST", "uploads"): "CreateMultipartUpload",
    ("GET", "uploads"): "ListMultipartUploads", ("PUT", "partNumber"): "UploadPart",
    ("POST", "uploadId"): "CompleteMultipartUpload", ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "uploadId"): "ListParts",
}  # fmt: skip
_S3_SUBRESOURCES: Final[Mapping[str, str]] = {
    "acl": "Acl", "cors": "Cors", "encryption": "Encryption", "lifecycle": "LifecycleConfiguration",
    "location": "Location", "logging": "Logging", "notification": "NotificationConfiguration",
    "ownershipControls": "OwnershipControls", "policy": "Policy", "publicAccessBlock": "PublicAccessBlock",
    "tagging": "Tagging", "versioning": "Versioning",
}  # fmt: skip
# The actions on one version of an object, which the request names (S3 user guide, "Required permissions").
_S3_OF_A_VERSION: Final[Mapping[str, str]] = {
    "GetObject": "GetObjectVersion", "HeadObject": "GetObjectVersion", "DeleteObject": "DeleteObjectVersion",
}  # fmt: skip
_VERBS: Final[Mapping[str, str]] = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "DELETE": "Delete", "POST": "Post"}


def _s3_call(region: str, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Call:
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    marks = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    parameters: dict[str, Any] = {"Bucket": bucket, "Key": key, "Prefix": marks.get("prefix", "")}
    operation = next((name for (verb, mark), name in _S3_MARKED.items() if verb == method and mark in marks), None)
    subresource = next((name for mark, name in _S3_SUBRESOURCES.items() if mark in marks), None)
    if operation is None and subresource is not None:
        operation = f"{_VERBS[method]}{'Object' if key else 'Bucket'}{subresource}"
    if operation is None:
        operation = "ListBuckets" if not bucket else (_S3_OBJECT if key else _S3_BUCKET)[method]
    if operation == "DeleteObjects":
        objects = list(_xml(body).iterfind(".//{*}Object"))
        parameters["Keys"] = [found.findtext("{*}Key") or "" for found in objects]
        parameters["Versioned"] = [found.find("{*}VersionId") is not None for found in objects]
    elif operation in _S3_OF_A_VERSION and "versionId" in marks:
        operation = _S3_OF_A_VERSION[operation]
    if key_id := headers.get("x-amz-server-side-encryption-aws-kms-key-id"):
        parameters["SSEKMSKeyId"] = key_id
    if source := headers.get("x-amz-copy-source"):
        parameters["CopySource"] = unquote(source).lstrip("/").partition("?")[0]
        operation = {"PutObject": "CopyObject", "UploadPart": "UploadPartCopy"}.get(operation, operation)
    return Call(service="s3", region=region, operation=operation, parameters=parameters)


def _xml(body: bytes) -> ET.Element:
    try:
        return ET.fromstring(body)  # noqa: S314 - the caller has signed the body; expat limits entities
    except ET.ParseError:
        return ET.Element("unreadable")  # the service itself answers that it cannot parse the body


def shared_context(region: str) -> dict[str, list[str]]:
    """Return the condition keys, with values, that every request has."""
    return {
        "aws:securetransport": ["true"],
        "aws:requestedregion": [region],
        # The emulation has only this account.
        "aws:resourceaccount": [ACCOUNT_ID],
        "s3:resourceaccount": [ACCOUNT_ID],
    }


def judged(call: Call) -> list[Request]:
    """Return each action, with its resource and condition keys, for which a call needs permission."""
    shared = shared_context(call.region)
    rows = _s3_rights(call) if call.service == "s3" else _rights(call)
    return [
        Request(action=action, resource=resource, context={**shared, **context}) for action, resource, context in rows
    ]


Right = tuple[str, str, "Mapping[str, Sequence[str]]"]
"""An action, a resource's ARN, and the values of condition keys."""

# Service Authorization Reference, "Actions, resources, and condition keys for Amazon S3".
_S3_ACTIONS: Final[Mapping[str, str]] = {
    "HeadObject": "GetObject", "UploadPart": "PutObject", "CreateMultipartUpload": "PutObject",
    "CompleteMultipartUpload": "PutObject", "CopyObject": "PutObject", "UploadPartCopy": "PutObject",
    "PostObject": "PutObject", "ListParts": "ListMultipartUploadParts", "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket", "HeadBucket": "ListBucket", "ListObjectVersions": "ListBucketVersions",
    "ListMultipartUploads": "ListBucketMultipartUploads", "ListBuckets": "ListAllMyBuckets",
    "GetBucketEncryption": "GetEncryptionConfiguration", "PutBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
    "DeleteBucketPublicAccessBlock": "PutBucketPublicAccessBlock", "DeleteBucketTagging": "PutBucketTagging",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "PutBucketNotificationConfiguration": "PutBucketNotification",
}  # fmt: skip


def _s3_rights(call: Call) -> Iterator[Right]:
    bucket, key = call.parameters["Bucket"], call.parameters["Key"]
    action = f"s3:{_S3_ACTIONS.get(call.operation, call.operation)}"
    arn = f"arn:{PARTITION}:s3:::{bucket}"
    if call.operation == "ListBuckets":
        yield action, "*", {}
    elif call.operation == "DeleteObjects":
        for one, versioned in zip(call.parameters["Keys"], call.parameters["Versioned"], strict=True):
            yield f"s3:DeleteObject{'Version' if versioned else ''}", f"{arn}/{one}", {}
    elif key:
        yield action, f"{arn}/{key}", {}
    else:
        yield action, arn, {"s3:prefix": [call.parameters["Prefix"]]} if action.startswith("s3:List") else {}
    if source := call.parameters.get("CopySource"):
        yield "s3:GetObject", f"arn:{PARTITION}:s3:::{source}", {}


def _rights(call: Call) -> Iterator[Right]:
    prefix = _PREFIXES.get(call.service, call.service)
    operation = _ACTIONS.get(f"{prefix}:{call.operation}", call.operation)
    context = _CONTEXT[call.service](call) if call.service in _CONTEXT else {}
    for arn in resources_of(call):
        yield f"{prefix}:{operation}", arn, context
    tagging = TAGGED_AT_CREATION.get((call.service, call.operation))
    if tagging is not None and has_tags(call):
        # The resource that is created is the first one of the call; the others exist already.
        yield f"{prefix}:{tagging}", resources_of(call)[0], context
    if (code := _code(call)) is not None:
        # Lambda reads a function's code with the rights of the caller.
        yield "s3:GetObject", code, {}
    target = call.parameters.get("Target")
    given = {**call.parameters, **(target if isinstance(target, dict) else {})}
    role = next((given[name] for name in _PASSED if given.get(name)), None)
    if isinstance(role, str) and call.service != "sts":
        yield "iam:PassRole", role, {"iam:passedtoservice": [f"{call.service}.amazonaws.com"]}


def _code(call: Call) -> str | None:
    """Return the ARN of the S3 object with a Lambda function's new code; None if the call does not name one."""
    if call.service != "lambda" or call.operation not in {"CreateFunction", "UpdateFunctionCode"}:
        return None
    code = call.parameters.get("Code", call.parameters)
    if not isinstance(code, dict) or not code.get("S3Bucket"):
        return None
    return f"arn:{PARTITION}:s3:::{code['S3Bucket']}/{code.get('S3Key', '')}"


# Service Authorization Reference: operations whose action has another name.
_ACTIONS: Final[Mapping[str, str]] = {
    "lambda:Invoke": "InvokeFunction",
    "sagemaker:InvokeEndpointWithResponseStream": "InvokeEndpoint",
    "budgets:CreateBudget": "ModifyBudget",
    "budgets:UpdateBudget": "ModifyBudget",
    "budgets:DeleteBudget": "ModifyBudget",
    "budgets:DescribeBudget": "ViewBudget",
    "budgets:DescribeBudgets": "ViewBudget",
}

_PASSED: Final = ("ExecutionRoleArn", "RoleARN", "RoleArn", "Role")
"""Parameters that hand a role to a service (IAM user guide, "Grant a user permissions to pass a role"); not STS's."""


def _scaling_context(call: Call) -> Mapping[str, Sequence[str]]:
    named = {
        "application-autoscaling:service-namespace": call.parameters.get("ServiceNamespace"),
        "application-autoscaling:scalable-dimension": call.parameters.get("ScalableDimension"),
    }
    return {key: [value] for key, value in named.items() if value}


def _metric_context(call: Call) -> Mapping[str, Sequence[str]]:
    namespace = call.parameters.get("Namespace")
    return {"cloudwatch:namespace": [namespace]} if namespace else {}


_CONTEXT: Final[Mapping[str, Callable[[Call], Mapping[str, Sequence[str]]]]] = {
    "application-autoscaling": _scaling_context,
    "monitoring": _metric_context,
}
