"""The demo's checks: leftover resources are found, and sentences are compared."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from local_aws.demo.script import cosine, find_leftovers, mean_pooled


@pytest.fixture(autouse=True)
def _dummy_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@mock_aws
def test_empty_account_has_no_leftovers() -> None:
    """An empty account has no leftover resources."""
    assert find_leftovers(boto3.Session()) == {}


@mock_aws
def test_each_kind_is_found() -> None:
    """Everything that a stack could leave behind is seen, by kind and name."""
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="left")
    s3.put_object(Bucket="left", Key="a/b.tar.gz", Body=b"x")
    boto3.client("logs").create_log_group(logGroupName="/aws/sagemaker/Endpoints/left")
    boto3.client("iam").create_role(RoleName="left", AssumeRolePolicyDocument="{}")

    assert find_leftovers(boto3.Session()) == {
        "bucket": ["left"],
        "object": ["left/a/b.tar.gz"],
        "log group": ["/aws/sagemaker/Endpoints/left"],
        "role": ["left"],
    }


@mock_aws
def test_bootstrap_is_not_a_leftover() -> None:
    """Resources of `cdk bootstrap` serve other stacks and stay."""
    boto3.client("s3").create_bucket(Bucket="cdk-hnb659fds-assets-123456789012-us-east-1")
    boto3.client("iam").create_role(
        RoleName="cdk-hnb659fds-deploy-role-123456789012-us-east-1", AssumeRolePolicyDocument="{}"
    )

    assert find_leftovers(boto3.Session()) == {}


def test_mean_of_tokens_has_length_one() -> None:
    """Pooling averages over tokens, not over dimensions, and scales."""
    assert mean_pooled([[3.0, 0.0], [3.0, 8.0]]) == pytest.approx([0.6, 0.8])


def test_cosine_orders_by_direction() -> None:
    """The cosine of equal directions is 1, and that of a right angle 0."""
    assert cosine([0.6, 0.8], [0.6, 0.8]) == pytest.approx(1)
    assert cosine([1.0, 0.0], [0.0, 1.0]) == 0
