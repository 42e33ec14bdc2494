"""Updating a stack to a template, and looking on until it has ended."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cohost.artifacts.layout import Layout
from cohost.deploying import Progress
from cohost.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

    from cohost.deployment import Deployment

BODY_BYTES: Final = 51_200
"""CloudFormation takes a longer template from S3 only (user guide: quotas)."""

_CAPABILITIES: Final = ("CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND")
_DONE: Final = "UPDATE_COMPLETE"


def read_template(cloudformation: CloudFormationClient, stack: str) -> dict[str, Any]:
    """The template of a stack as it was deployed.

    Raises:
        StackError: CloudFormation does not give it, or not as JSON, which `cdk` writes.
    """
    try:
        body = cloudformation.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
        # boto3 parses a JSON template itself, whatever its type stubs say.
        template: Any = json.loads(body) if isinstance(body, str) else body
    except ClientError as error:
        raise _refused(stack, error) from error
    except ValueError as error:
        raise StackError(
            f"stack {stack!r}: its template is no JSON; allowed: what `cdk deploy` deployed; fix: run `cdk deploy`"
        ) from error
    if not isinstance(template, dict):
        raise StackError(f"stack {stack!r}: its template is no JSON object; fix: run `cdk deploy {stack}`")
    return template


def update(
    cloudformation: CloudFormationClient,
    s3: S3Client,
    deployment: Deployment,
    template: Mapping[str, Any],
    *,
    show: Callable[[Progress], None],
    poll_s: float = 2.0,
) -> None:
    """Update a deployment's stack to a template and show the progress until it has ended.

    Parameters, tags and the role that CloudFormation works with stay as they are.

    Raises:
        StackError: CloudFormation refuses, or the update failed and was rolled back; names each resource and why.
    """
    stack = deployment.stack_name
    body = json.dumps(template, separators=(",", ":"), ensure_ascii=False)
    started = datetime.now(UTC)
    try:
        with _handed_over(s3, deployment, body) as handed:
            parameters = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("Parameters", [])
            cloudformation.update_stack(
                StackName=stack,
                Capabilities=[*_CAPABILITIES],
                Parameters=[{"ParameterKey": one["ParameterKey"], "UsePreviousValue": True} for one in parameters],
                **handed,
            )
    except ClientError as error:
        raise _refused(stack, error) from error
    _follow(cloudformation, stack, Progress(started=started), show, poll_s)


@contextmanager
def _handed_over(s3: S3Client, deployment: Deployment, body: str) -> Iterator[dict[str, Any]]:
    """The template as an argument; a long one lies in the stack's own bucket for as long as it takes to be read."""
    if len(body.encode()) <= BODY_BYTES:
        yield {"TemplateBody": body}
        return
    layout = Layout(bucket=deployment.bucket, prefix=deployment.prefix)
    key = layout.template(f"{uuid.uuid4()}.json")
    s3.put_object(Bucket=deployment.bucket, Key=key, Body=body.encode(), ContentType="application/json")
    try:
        yield {"TemplateURL": f"{s3.meta.endpoint_url}/{deployment.bucket}/{key}"}
    finally:
        s3.delete_object(Bucket=deployment.bucket, Key=key)


def _follow(
    cloudformation: CloudFormationClient,
    stack: str,
    progress: Progress,
    show: Callable[[Progress], None],
    poll_s: float,
) -> None:
    while True:
        # The status first: what happened until then is in the events that are read after it.
        status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
        progress.take(list(reversed(cloudformation.describe_stack_events(StackName=stack)["StackEvents"])))
        show(progress)
        if not status.endswith("_IN_PROGRESS"):
            break
        time.sleep(poll_s)
    if status != _DONE:
        told = "\n".join(progress.failures) or "no resource says why"
        raise StackError(
            f"updating {stack} ended in {status}; the stack is as it was unless that says ROLLBACK_FAILED; fix: what "
            f"stands below\n{told}"
        )


def _refused(stack: str, error: ClientError) -> StackError:
    reason = error.response["Error"].get("Message", str(error))
    return StackError(
        f"stack {stack!r}: {error.operation_name}: {reason}; fix: wait for a running update, or check rights"
    )
