"""Where a request's template comes from: its body, or an object in S3 by any of S3's kinds of URL."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from botocore.exceptions import ClientError

from local_aws.cloudformation.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_aws.settings import Clients


def template_body(request: Mapping[str, Any], clients: Clients, region: str) -> str:
    """The text of the template that a request names.

    Raises:
        ValidationError: it names none, or the object cannot be read.
    """
    if request.get("TemplateBody"):
        return str(request["TemplateBody"])
    if not request.get("TemplateURL"):
        raise ValidationError("Either Template URL or Template Body must be specified.")
    bucket, key = s3_location(str(request["TemplateURL"]))
    try:
        answer = clients.get("s3", region).get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        raise ValidationError(f"S3 error: cannot read the template s3://{bucket}/{key}: {error}") from None
    return str(answer["Body"].read().decode("utf-8"))


def s3_location(url: str) -> tuple[str, str]:
    """Bucket and key of an S3 URL.

    `https://BUCKET.s3.REGION.amazonaws.com/KEY`, `https://s3.REGION.amazonaws.com/BUCKET/KEY`, and an address of this
    machine, `http://127.0.0.1:PORT/BUCKET/KEY`, which is what AWS_ENDPOINT_URL makes of them.

    Raises:
        ValidationError: it is none of these.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", unquote(parts.path.lstrip("/"))
    bucket, _, _ = host.partition(".s3")
    if _is_path_style(host):
        bucket, _, path = path.partition("/")
    if not bucket or not path or (host == bucket and not _is_path_style(host)):
        raise ValidationError(f"TemplateURL must be a supported URL of an S3 object, not {url}")
    return bucket, path


def _is_path_style(host: str) -> bool:
    if host == "localhost" or host.startswith(("s3.", "s3-")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
