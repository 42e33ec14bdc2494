"""The sources of templates: a request body or an object in S3."""

from __future__ import annotations

import io

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.templates.template import (
    BODY_LIMIT,
    OBJECT_LIMIT_BYTES,
    parse_template,
    s3_location,
    template_body,
)


def no_s3() -> None:
    """Fail: the test reads nothing from S3."""
    raise AssertionError("S3 was asked")


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
    """Template URLs with a virtual host, a path and a local address give the same object."""
    assert s3_location(url) == ("bucket", "a/key.json")


@pytest.mark.parametrize("url", ["https://example.com/bucket/key", "http://127.0.0.1:4566/bucket", "nothing"])
def test_other_url_is_refused(url: str) -> None:
    """A template URL outside S3 is rejected with the URL in the message."""
    with faulted("ValidationError", 400, "TemplateURL"):
        s3_location(url)


def test_request_without_template_is_refused() -> None:
    """A request with neither a template body nor a template URL is rejected."""
    with faulted("ValidationError", 400, "Template"):
        template_body({}, no_s3)


def test_a_template_in_the_request_has_the_size_that_cloudformation_takes() -> None:
    """A larger one has to come from S3, as on AWS."""
    assert len(template_body({"TemplateBody": "x" * BODY_LIMIT}, no_s3)) == BODY_LIMIT
    with faulted("ValidationError", 400, "Member must have length less than or equal to 51200"):
        template_body({"TemplateBody": "x" * (BODY_LIMIT + 1)}, no_s3)


class UnreadBody(io.BytesIO):
    """A body that must not be read."""

    def read(self, *_: int | None) -> bytes:
        """Fail."""
        raise AssertionError("read although it is too large")


class OneObject:
    """A client of an S3 whose one object is larger than a template may be."""

    def get_object(self, **_: str) -> dict[str, object]:
        """An object of one byte more than CloudFormation takes."""
        return {"ContentLength": OBJECT_LIMIT_BYTES + 1, "Body": UnreadBody()}


def test_a_template_in_s3_that_is_too_large_is_not_read() -> None:
    """CloudFormation's text, before the bytes are fetched."""
    with faulted("ValidationError", 400, "Template may not exceed 1000000 bytes in size."):
        template_body({"TemplateURL": "https://s3.amazonaws.com/b/k"}, OneObject)


def test_a_template_with_aliases_is_refused() -> None:
    """CloudFormation takes none, so a small template cannot stand for a huge one either."""
    with faulted("ValidationError", 400, "YAML aliases are not allowed in CloudFormation templates"):
        parse_template("Resources:\n  A: &a {Type: AWS::S3::Bucket}\n  B: *a\n")
