"""The bucket that archives are published to."""

from __future__ import annotations

from typing import Any

import pytest
from synthesis import make_catalog, make_stack, only, template_of


def test_bucket_is_private_and_encrypted(product: dict[str, Any]) -> None:
    """The bucket rejects public access, is encrypted, and owns all of its objects."""
    _, bucket = only(product, "AWS::S3::Bucket")
    properties = bucket["Properties"]
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(properties["PublicAccessBlockConfiguration"]) == 4
    assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    encryption = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]


def test_bucket_has_no_physical_name(product: dict[str, Any]) -> None:
    """The bucket has a generated name, so two stacks of one catalog can exist side by side."""
    _, bucket = only(product, "AWS::S3::Bucket")
    assert "BucketName" not in bucket["Properties"]


def test_bucket_answers_over_tls_only(product: dict[str, Any]) -> None:
    """The bucket policy denies every action without TLS, on the bucket and on its objects."""
    bucket_id, _ = only(product, "AWS::S3::Bucket")
    _, policy = only(product, "AWS::S3::BucketPolicy")
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    arn = {"Fn::GetAtt": [bucket_id, "Arn"]}
    assert statement == {
        "Action": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Resource": [arn, {"Fn::Join": ["", [arn, "/*"]]}],
    }


@pytest.mark.parametrize(("on_destroy", "policy"), [("delete", "Delete"), ("keep", "Retain")])
def test_bucket_stays_only_where_the_catalog_says_keep(on_destroy: str, policy: str) -> None:
    """`cdk destroy` deletes the bucket unless the catalog has `on_destroy: keep`."""
    # GIVEN
    stack = make_stack(make_catalog(storage={"on_destroy": on_destroy}))
    # WHEN
    _, bucket = only(template_of(stack), "AWS::S3::Bucket")
    # THEN
    assert bucket["DeletionPolicy"] == policy


def test_no_helper_empties_the_bucket(product: dict[str, Any]) -> None:
    """The stack has no custom resource that deletes objects which the model store did not write."""
    assert [kind for kind in (r["Type"] for r in product["Resources"].values()) if kind.startswith("Custom::")] == [
        "Custom::LmiModelStore"
    ]
