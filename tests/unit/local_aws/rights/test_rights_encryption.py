"""Rights on the KMS keys of objects in S3."""

from __future__ import annotations

from typing import Any

import pytest

from local_aws.rights.encryption import Encryption, ObjectKey
from local_aws.rights.resource_arns import Call

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1"
OTHER = "arn:aws:kms:eu-west-1:123456789012:key/2"
OBJECTS = {("locked", "a"): ObjectKey(arn=KEY), ("shared", "a"): ObjectKey(arn=OTHER, by_bucket=True)}
LOOKUP = Encryption(
    of_object=lambda _region, bucket, name: OBJECTS.get((bucket, name)),
    of_bucket=lambda _region, bucket, stated: (
        ObjectKey(arn=stated or KEY, by_bucket=True) if stated or bucket == "locked" else None
    ),
)


def rights(operation: str, bucket: str, key: str = "a", **parameters: Any) -> list[tuple[str, str]]:
    """The actions and keys that a request needs."""
    call = Call(
        service="s3",
        region="eu-west-1",
        operation=operation,
        parameters={"Bucket": bucket, "Key": key, **parameters},
    )
    return [(one.action, one.resource) for one in LOOKUP.rights(call)]


@pytest.mark.parametrize(
    ("operation", "bucket", "parameters", "expected"),
    [
        ("GetObject", "locked", {}, [("kms:Decrypt", KEY)]),
        ("GetObjectVersion", "locked", {}, [("kms:Decrypt", KEY)]),
        ("HeadObject", "locked", {}, [("kms:Decrypt", KEY)]),
        ("GetObject", "open", {}, []),
        ("PutObject", "locked", {}, [("kms:GenerateDataKey", KEY)]),
        ("PutObject", "open", {}, []),
        ("PutObject", "open", {"SSEKMSKeyId": OTHER}, [("kms:GenerateDataKey", OTHER)]),
        ("CreateMultipartUpload", "locked", {}, [("kms:Decrypt", KEY), ("kms:GenerateDataKey", KEY)]),
        ("CopyObject", "locked", {"CopySource": "shared/a"}, [("kms:GenerateDataKey", KEY), ("kms:Decrypt", OTHER)]),
        ("DeleteObject", "locked", {}, []),
        ("ListObjectsV2", "locked", {"Key": ""}, []),
    ],
)
def test_a_request_needs_rights_on_the_keys_of_its_objects(
    operation: str, bucket: str, parameters: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Reading decrypts, writing makes a data key, joining parts does both, and a copy has two ends."""
    assert rights(operation, bucket, **parameters) == expected


@pytest.mark.parametrize(("bucket", "of"), [("locked", "locked/a"), ("shared", "shared")])
def test_the_conditions_of_a_key_see_the_service_and_the_object(bucket: str, of: str) -> None:
    """A policy may allow a key through S3 only, and for one bucket only where S3 uses a bucket key."""
    call = Call(service="s3", region="eu-west-1", operation="GetObject", parameters={"Bucket": bucket, "Key": "a"})
    (request,) = LOOKUP.rights(call)
    assert request.context["kms:viaservice"] == ["s3.eu-west-1.amazonaws.com"]
    assert request.context["kms:encryptioncontext:aws:s3:arn"] == [f"arn:aws:s3:::{of}"]
