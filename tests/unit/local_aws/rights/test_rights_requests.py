"""Each request is judged by the action and resource that the Service Authorization Reference names."""

from __future__ import annotations

import json

import pytest

from local_aws.rights.requests import has_judged_body, judged, read_call

B = "arn:aws:s3:::b"


def rights(
    service: str, method: str, path: str, query: str = "", *, body: object = b"", **headers: str
) -> list[tuple[str, str]]:
    """Return action and resource of each right that a request needs."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    call = read_call(service, "us-east-1", method, path, query, named, content)
    return [(one.action, one.resource) for one in judged(call)]


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/b/a/k%20x", "", ("s3:GetObject", f"{B}/a/k x")),
        ("HEAD", "/b/k", "", ("s3:GetObject", f"{B}/k")),
        ("PUT", "/b/k", "", ("s3:PutObject", f"{B}/k")),
        ("DELETE", "/b/k", "", ("s3:DeleteObject", f"{B}/k")),
        ("POST", "/b/k", "uploads", ("s3:PutObject", f"{B}/k")),
        ("PUT", "/b/k", "partNumber=1&uploadId=u", ("s3:PutObject", f"{B}/k")),
        ("POST", "/b/k", "uploadId=u", ("s3:PutObject", f"{B}/k")),
        ("DELETE", "/b/k", "uploadId=u", ("s3:AbortMultipartUpload", f"{B}/k")),
        ("GET", "/b/k", "uploadId=u", ("s3:ListMultipartUploadParts", f"{B}/k")),
        ("GET", "/b", "list-type=2&prefix=a/", ("s3:ListBucket", B)),
        ("GET", "/b/", "", ("s3:ListBucket", B)),
        ("HEAD", "/b", "", ("s3:ListBucket", B)),
        ("GET", "/b", "versions", ("s3:ListBucketVersions", B)),
        ("GET", "/b", "location", ("s3:GetBucketLocation", B)),
        ("GET", "/b", "encryption", ("s3:GetEncryptionConfiguration", B)),
        ("PUT", "/b", "policy", ("s3:PutBucketPolicy", B)),
        ("PUT", "/b", "", ("s3:CreateBucket", B)),
        ("GET", "/", "", ("s3:ListAllMyBuckets", "*")),
    ],
)
def test_s3_requests_need_their_action(method: str, path: str, query: str, expected: tuple[str, str]) -> None:
    """The action of an S3 request follows from method, path and query."""
    assert rights("s3", method, path, query) == [expected]


def test_a_copy_needs_both_ends() -> None:
    """CopyObject and UploadPartCopy read the source and write the target."""
    expected = [("s3:PutObject", f"{B}/k"), ("s3:GetObject", "arn:aws:s3:::other/a b")]
    assert rights("s3", "PUT", "/b/k", x_amz_copy_source="/other/a%20b?versionId=v") == expected
    assert rights("s3", "PUT", "/b/k", "partNumber=1&uploadId=u", x_amz_copy_source="other/a b") == expected


def test_each_object_of_a_deletion_needs_the_right() -> None:
    """DeleteObjects needs the right for each key in its body; the body of an upload is not read."""
    body = b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a</Key></Object><Object><Key>c/d</Key></Object></Delete>'
    assert rights("s3", "POST", "/b", "delete", body=body) == [
        ("s3:DeleteObject", f"{B}/a"),
        ("s3:DeleteObject", f"{B}/c/d"),
    ]
    assert has_judged_body("s3", "delete")
    assert not has_judged_body("s3", "partNumber=1")
    assert has_judged_body("sagemaker", "")


def test_a_listing_states_its_prefix() -> None:
    """A listing has its prefix as the condition key `s3:prefix`."""
    (request,) = judged(read_call("s3", "us-east-1", "GET", "/b", "list-type=2&prefix=a%2Fb", {}, b""))
    assert request.context["s3:prefix"] == ["a/b"]


SAGEMAKER = "arn:aws:sagemaker:us-east-1:123456789012"


@pytest.mark.parametrize(
    ("service", "target", "body", "expected"),
    [
        ("sagemaker", "SageMaker.DeleteEndpoint", {"EndpointName": "My-E"}, [f"{SAGEMAKER}:endpoint/my-e"]),
        (
            "sagemaker",
            "SageMaker.UpdateInferenceComponentRuntimeConfig",
            {"InferenceComponentName": "c"},
            [f"{SAGEMAKER}:inference-component/c"],
        ),
        ("sagemaker", "SageMaker.ListEndpoints", {}, ["*"]),
        (
            "monitoring",
            "GraniteServiceVersion20100801.DescribeAlarms",
            {"AlarmNames": ["a", "b"]},
            [f"arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}" for name in "ab"],
        ),
        ("kms", "TrentService.Decrypt", {"KeyId": "arn:k"}, ["arn:k"]),
    ],
)
def test_json_requests_need_their_action(service: str, target: str, body: object, expected: list[str]) -> None:
    """The action of a JSON request is in X-Amz-Target; SageMaker's ARNs are in lower case."""
    found = rights(service, "POST", "/", body=body, x_amz_target=target, content_type="application/x-amz-json-1.1")
    prefix = "cloudwatch" if service == "monitoring" else service
    assert found == [(f"{prefix}:{target.rpartition('.')[2]}", resource) for resource in expected]


def test_a_role_that_is_handed_on_needs_pass_role() -> None:
    """CreateModel needs iam:PassRole for its execution role, and AssumeRole does not."""
    body = {"ModelName": "m", "ExecutionRoleArn": "arn:aws:iam::123456789012:role/r"}
    call = read_call(
        "sagemaker", "us-east-1", "POST", "/", "", {"x-amz-target": "SageMaker.CreateModel"}, json.dumps(body).encode()
    )
    create, passed = judged(call)
    assert (create.action, passed.action, passed.resource) == (
        "sagemaker:CreateModel", "iam:PassRole", "arn:aws:iam::123456789012:role/r",
    )  # fmt: skip
    assert passed.context["iam:passedtoservice"] == ["sagemaker.amazonaws.com"]
    form = b"Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"
    assert rights("sts", "POST", "/", body=form) == [("sts:AssumeRole", "arn:aws:iam::1:role/r")]


@pytest.mark.parametrize(
    ("service", "method", "path", "expected"),
    [
        ("scheduler", "PUT", "/schedules/end", ("scheduler:UpdateSchedule", "schedule/default/end")),
        ("scheduler", "DELETE", "/schedules/end", ("scheduler:DeleteSchedule", "schedule/default/end")),
        ("lambda", "GET", "/2015-03-31/functions/f", ("lambda:GetFunction", "function:f")),
        ("lambda", "POST", "/2015-03-31/functions/f/invocations", ("lambda:InvokeFunction", "function:f")),
        ("sagemaker", "POST", "/endpoints/My-E/invocations", ("sagemaker:InvokeEndpoint", "endpoint/my-e")),
        ("lambda", "POST", "/nowhere", ("lambda:POST /nowhere", None)),
    ],
)
def test_rest_requests_need_their_action(
    service: str, method: str, path: str, expected: tuple[str, str | None]
) -> None:
    """The action of a REST request follows from botocore's model, and an unknown one is never allowed."""
    action, resource = expected
    arn = "*" if resource is None else f"arn:aws:{service}:us-east-1:123456789012:{resource}"
    assert rights(service, method, path) == [(action, arn)]


def test_scaling_states_namespace_and_dimension() -> None:
    """Requests of Application Auto Scaling have namespace and dimension as condition keys."""
    body = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
    headers = {"x-amz-target": "AnyScaleFrontendService.DeregisterScalableTarget"}
    (request,) = judged(
        read_call("application-autoscaling", "us-east-1", "POST", "/", "", headers, json.dumps(body).encode())
    )
    assert request.resource == "arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/*"
    assert request.context["application-autoscaling:service-namespace"] == ["sagemaker"]
    assert request.context["application-autoscaling:scalable-dimension"] == ["sagemaker:variant:DesiredInstanceCount"]


def test_a_version_of_an_object_needs_an_action_of_its_own() -> None:
    """S3 judges the deletion and the reading of one version by other actions than those of the object."""
    assert rights("s3", "DELETE", "/b/k", "versionId=null") == [("s3:DeleteObjectVersion", f"{B}/k")]
    assert rights("s3", "GET", "/b/k", "versionId=1") == [("s3:GetObjectVersion", f"{B}/k")]
    body = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key><VersionId>1</VersionId></Object></Delete>"
    expected = [("s3:DeleteObject", f"{B}/a"), ("s3:DeleteObjectVersion", f"{B}/b")]
    assert rights("s3", "POST", "/b", "delete", body=body) == expected


def test_tags_of_a_new_resource_need_the_right_to_tag_it() -> None:
    """With tags, in JSON or as members of a form, a second action is judged on the new resource."""
    target = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
    body: dict[str, object] = {"ModelName": "M"}
    plain = rights("sagemaker", "POST", "/", body=body, x_amz_target="SageMaker.CreateModel")
    assert plain == [("sagemaker:CreateModel", target)]
    tagged = {**body, "Tags": [{"Key": "a", "Value": "b"}]}
    assert rights("sagemaker", "POST", "/", body=tagged, x_amz_target="SageMaker.CreateModel") == [
        *plain,
        ("sagemaker:AddTags", target),
    ]
    form = b"Action=CreateRole&RoleName=r&Tags.member.1.Key=a&Tags.member.1.Value=b"
    role = "arn:aws:iam::123456789012:role/r"
    assert rights("iam", "POST", "/", body=form) == [("iam:CreateRole", role), ("iam:TagRole", role)]


def test_an_endpoint_is_made_of_its_configuration() -> None:
    """CreateEndpoint and UpdateEndpoint are judged on both resources."""
    body = {"EndpointName": "E", "EndpointConfigName": "C"}
    arn = "arn:aws:sagemaker:us-east-1:123456789012:"
    for operation in ("CreateEndpoint", "UpdateEndpoint"):
        assert rights("sagemaker", "POST", "/", body=body, x_amz_target=f"SageMaker.{operation}") == [
            (f"sagemaker:{operation}", f"{arn}endpoint/e"),
            (f"sagemaker:{operation}", f"{arn}endpoint-config/c"),
        ]


def test_code_of_a_function_is_read_as_the_caller() -> None:
    """CreateFunction with code in S3 needs the right to read the object, and passes the role to Lambda."""
    role = "arn:aws:iam::123456789012:role/r"
    body = {"FunctionName": "f", "Code": {"S3Bucket": "b", "S3Key": "k"}, "Role": role}
    found = rights("lambda", "POST", "/2015-03-31/functions", body=body)
    arn = "arn:aws:lambda:us-east-1:123456789012:function:f"
    assert found == [("lambda:CreateFunction", arn), ("s3:GetObject", f"{B}/k"), ("iam:PassRole", role)]


def test_group_of_a_schedule_is_read_from_the_query() -> None:
    """GetSchedule names the group in the query string, under another name than the API's member."""
    found = rights("scheduler", "GET", "/schedules/end", "groupName=mine")
    assert found == [("scheduler:GetSchedule", "arn:aws:scheduler:us-east-1:123456789012:schedule/mine/end")]


def test_resources_of_a_network_are_judged_one_by_one() -> None:
    """A gateway endpoint is made in a VPC and for its route tables; its own id is not known before."""
    form = b"Action=CreateVpcEndpoint&VpcId=vpc-1&RouteTableId.1=rtb-1&RouteTableId.2=rtb-2"
    names = ["vpc-endpoint/*", "vpc/vpc-1", "route-table/rtb-1", "route-table/rtb-2"]
    expected = [("ec2:CreateVpcEndpoint", f"arn:aws:ec2:us-east-1:123456789012:{name}") for name in names]
    assert rights("ec2", "POST", "/", body=form) == expected
