"""Fetches weights from S3, as the container's downloader does for s3:// addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from local_aws.lmi.faults import DownloadFailure

if TYPE_CHECKING:
    from pathlib import Path


def download(url: str, into: Path) -> Path:
    """Copies every object below `url` ("s3://bucket/prefix") into the folder `into` and returns that folder.

    Credentials and endpoint come from the environment, as boto3 reads them.

    Raises:
        DownloadFailure: nothing lies there, or S3 refuses.
    """
    parts = urlsplit(url)
    # The server's downloader asks for "<address>/*": what lies below the address, and no neighbour whose name goes on.
    prefix = f"{parts.path.strip('/')}/"
    try:
        client = boto3.client("s3")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=parts.netloc, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", []) if not item["Key"].endswith("/")]
        for key in keys:
            target = into / key.removeprefix(prefix)
            if not target.resolve().is_relative_to(into.resolve()):
                raise DownloadFailure(f"Failed to download {url}: the key {key} leads out of the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(parts.netloc, key, str(target))
    except (BotoCoreError, ClientError, OSError) as error:
        raise DownloadFailure(f"Failed to download {url}: {error}") from error
    if not keys:
        raise DownloadFailure(f"Failed to download {url}: no object has that prefix; check option.model_id")
    return into
