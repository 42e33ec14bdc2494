"""Where templates come from."""

from __future__ import annotations

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.template import s3_location, template_body


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket.s3.us-east-1.amazonaws.com/a/key.json",
        "https://bucket.s3.amazonaws.com/a/key.json",
        "https://s3.us-east-1.amazonaws.com/bucket/a/key.json",
        "https://s3.amazonaws.com/bucket/a/key.json",
        "http://127.0.0.1:4566/bucket/a/key.json",
        "http://localhost:4566/bucket/a%2Fkey.json",
    ],
)
def test_every_kind_of_s3_url_is_read(url: str) -> None:
    """Virtual hosts, path style and this machine's address name the same object."""
    assert s3_location(url) == ("bucket", "a/key.json")


@pytest.mark.parametrize("url", ["https://example.com/bucket/key", "http://127.0.0.1:4566/bucket", "nothing"])
def test_other_url_is_refused(url: str) -> None:
    """What is no object of S3 is refused with the URL."""
    with faulted("ValidationError", 400, "TemplateURL"):
        s3_location(url)


def test_request_without_template_is_refused() -> None:
    """Neither a body nor a URL."""
    with faulted("ValidationError", 400, "Template"):
        template_body({}, lambda: None)
