"""The rights of the container's role, and the resources that wait until the role has them."""

from __future__ import annotations

from typing import Any

from synthesis import make_catalog, make_stack, only, resources, statements, template_of, waits_for


def role_of(template: dict[str, Any]) -> str:
    """The logical id of the role that the SageMaker Model names."""
    _, model = only(template, "AWS::SageMaker::Model")
    role_id: str = model["Properties"]["ExecutionRoleArn"]["Fn::GetAtt"][0]
    return role_id


def rights_of(template: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Resource and condition of everything the role may do, by action."""
    return {
        action: (statement["Resource"], statement.get("Condition"))
        for statement in statements(template, role_of(template))
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }


def test_role_may_do_these_things_and_no_more(product: dict[str, Any]) -> None:
    """The role may read archives, pull the image and write logs and metrics, without a wildcard action."""
    assert set(rights_of(product)) == {
        "cloudwatch:PutMetricData",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetAuthorizationToken",
        "ecr:GetDownloadUrlForLayer",
        "logs:CreateLogStream",
        "logs:DescribeLogStreams",
        "logs:PutLogEvents",
        "s3:GetObject",
        "s3:ListBucket",
    }


def test_role_reads_its_prefix_only(product: dict[str, Any]) -> None:
    """The role may read objects below its prefix and list keys there."""
    bucket_id, _ = only(product, "AWS::S3::Bucket")
    arn = {"Fn::GetAtt": [bucket_id, "Arn"]}
    rights = rights_of(product)
    assert rights["s3:GetObject"] == ({"Fn::Join": ["", [arn, "/encoder-serving/lmi/04-lmi/*"]]}, None)
    assert rights["s3:ListBucket"] == (arn, {"StringLike": {"s3:prefix": "encoder-serving/lmi/04-lmi/*"}})


def test_role_pulls_the_one_repository_of_its_region() -> None:
    """The AWS images lie in another account, which differs by region and partition."""
    rights = rights_of(template_of(make_stack(make_catalog(), region="cn-north-1")))
    repository = "arn:aws-cn:ecr:cn-north-1:727897471807:repository/djl-inference"
    assert rights["ecr:BatchGetImage"] == (repository, None)
    assert rights["ecr:GetDownloadUrlForLayer"] == (repository, None)


def test_role_pulls_ones_own_image_where_the_catalog_names_it() -> None:
    """The role may pull the catalog's own image instead of the AWS image."""
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/lmi:1"
    rights = rights_of(template_of(make_stack(make_catalog(endpoint={"image_uri": uri}))))
    assert rights["ecr:BatchGetImage"] == ("arn:aws:ecr:us-east-1:123456789012:repository/team/lmi", None)


def test_role_writes_the_endpoints_log_only(product: dict[str, Any]) -> None:
    """The role may write logs of its endpoint only."""
    [group_id] = [
        name
        for name, group in resources(product, "AWS::Logs::LogGroup").items()
        if "LogGroupName" in group["Properties"]
    ]
    assert rights_of(product)["logs:PutLogEvents"] == ({"Fn::GetAtt": [group_id, "Arn"]}, None)


def test_metrics_are_limited_by_namespace(product: dict[str, Any]) -> None:
    """The role may put metrics only into SageMaker's namespaces."""
    assert rights_of(product)["cloudwatch:PutMetricData"] == (
        "*",
        {"StringLike": {"cloudwatch:namespace": ["AWS/SageMaker", "/aws/sagemaker/*"]}},
    )


def test_only_sagemaker_takes_the_role(product: dict[str, Any]) -> None:
    """The trust policy of the role names only SageMaker."""
    [statement] = product["Resources"][role_of(product)]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}


def test_model_and_endpoint_wait_for_the_policy(product: dict[str, Any]) -> None:
    """Model and endpoint are created after the policy of the role."""
    policies = [
        name
        for name, policy in resources(product, "AWS::IAM::Policy").items()
        if {"Ref": role_of(product)} in policy["Properties"]["Roles"]
    ]
    assert len(policies) == 1
    for kind in ("AWS::SageMaker::Model", "AWS::SageMaker::Endpoint"):
        name, resource = only(product, kind)
        assert policies[0] in resource["DependsOn"], kind
        assert waits_for(product, name, policies[0])
