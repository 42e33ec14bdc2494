"""The rights of each role, tested with the calls that are made with it and with calls that it must not make."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import boto3
import pytest
from aws_cdk import aws_iam as iam
from moto import mock_aws
from policies import ACCOUNT, REGION, TLS, Policies, Request
from s3_requests import Recorder
from synthesis import FLAGS, make_stack, only, resources, template_of

from cohost.archives import index, reply
from cohost.archives.packed import CRC, PLAIN_BYTES
from cohost.catalog.models import Catalog
from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack

if TYPE_CHECKING:
    from collections.abc import Callable

STORE = "Custom::LmiModelStore"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
WEIGHTS_KEY = KEY.replace("1234abcd", "88888888")
OTHER_KEY = KEY.replace("1234abcd", "99999999")
REVISION = "0" * 40
PUSHED = {"model_id": "org/name", "revision": REVISION, "task": "text-classification"}
WEIGHTS = f"lmi-cohost-weights-{ACCOUNT}-{REGION}"
NETWORK = {
    "vpc": "vpc-01234567",
    "subnets": ["subnet-01234567"],
    "security_groups": ["sg-01234567"],
    "s3_endpoint": "given",
}
ZERO = {"topology": "scale-to-zero"}

# What makes a design's rights differ; everything else of the catalog is the same.
DESIGNS: dict[str, dict[str, Any]] = {
    "multi-model": {},
    "scale-to-zero": {"endpoint": ZERO},
    "scaled": {"scaling": {"min": 1, "max": 2}},
    "weights-s3": {"models": {"nli": {**PUSHED, "weights": "s3"}}},
    "weights-archive": {"models": {"nli": {**PUSHED, "weights": "archive"}}},
    "own-weights": {"models": {"nli": {"model_id": "s3://mine/models/nli/", "task": "text-classification"}}},
    "own-weights-key": {
        "models": {"nli": {"model_id": "s3://locked/models/nli/", "task": "text-classification"}},
        "storage": {"weights_kms_key": WEIGHTS_KEY},
    },
    "keys": {"storage": {"kms_key": KEY}},
    "data-capture": {"data_capture": {"sampling_percentage": 10}},
    "data-capture-key": {"data_capture": {"sampling_percentage": 10, "kms_key": KEY}},
    "network": {"network": NETWORK, "models": {"nli": {**PUSHED, "weights": "s3"}}},
    "expiry": {"expires": "8h"},
    "expiry-scaled": {"expires": "8h", "scaling": {"min": 1, "max": 2}},
    "guarded": {"deployment": {"rollback_alarms": ["errors-of-another-stack"]}},
    "expiry-zero": {"expires": "8h", "endpoint": ZERO},
    "expiry-key": {"expires": "2099-12-31", "monitoring": {"kms_key": KEY}},
}


@functools.cache
def template(design: str) -> dict[str, Any]:
    """The template of a design."""
    changes = DESIGNS[design]
    entry = {"model_id": "org/name", "task": "text-classification"}
    endpoint = {"name": "lmi", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"}
    catalog = {
        "models": {"nli": entry},
        **changes,
        "endpoint": {**endpoint, **changes.get("endpoint", {})},
        "storage": {"prefix": "encoders/", **changes.get("storage", {})},
    }
    return template_of(make_stack(Catalog.model_validate(catalog)))


def policies(design: str) -> Policies:
    """The policies of a design."""
    return Policies(template(design))


def role(design: str, start: str) -> str:
    """Return the only role of a design whose logical id starts with this text."""
    [found] = [name for name in policies(design).roles() if name.startswith(start)]
    return found


def archives(design: str) -> str:
    """The name of the bucket of archives."""
    [bucket] = [name for name in resources(template(design), "AWS::S3::Bucket") if name.startswith("ModelBucket")]
    return policies(design).name(bucket)


def s3(action: str, bucket: str, key: str | None = None, **context: str) -> Request:
    """A request of S3 over TLS."""
    arn = f"arn:aws:s3:::{bucket}" if key is None else f"arn:aws:s3:::{bucket}/{key}"
    return Request(action=f"s3:{action}", resource=arn, context={**TLS, **context})


def listing(bucket: str, prefix: str) -> Request:
    """Listing the keys below a prefix."""
    return s3("ListBucket", bucket, **{"s3:prefix": prefix})


def on(action: str, resource: str, **context: str) -> Request:
    """A request of any other service."""
    return Request(action=action, resource=resource, context=context)


def refused(design: str, who: str, wanted: list[Request]) -> list[Request]:
    """Return those of the requests that the role may not make."""
    return [one for one in wanted if not policies(design).allows(who, one)]


class Life:
    """The store's whole life, run by the handler itself: create, change, fail, go back, delete."""

    def __init__(self, design: str, patch: pytest.MonkeyPatch) -> None:
        self._properties = policies(design).resolve(only(template(design), STORE)[1]["Properties"])
        self._answers: list[dict[str, Any]] = []
        self._client = boto3.client("s3", region_name=REGION)
        for bucket in (self._properties["Bucket"], WEIGHTS):
            self._client.create_bucket(Bucket=bucket)
        self._push()
        self.recorder = Recorder(self._client)
        patch.setattr(index, "s3_client", lambda: self._client)
        patch.setattr(reply, "_put", lambda _url, body: self._answers.append(json.loads(body)))

    def run(self) -> None:
        """Send every kind of event, and an update that returns to a named generation."""
        first = self._send("Create", self._with("1"))
        second = self._send("Update", self._with("2"), PhysicalResourceId=first, OldResourceProperties=self._with("1"))
        self._send("Delete", self._with("1"), PhysicalResourceId=first)
        third = self._send("Update", self._with("3"), PhysicalResourceId=second, OldResourceProperties=self._with("2"))
        self._send("Update", self._with("2"), PhysicalResourceId=third, OldResourceProperties=self._with("3"))
        self._send("Delete", self._with("3"), PhysicalResourceId=third)
        back = {**self._with("1"), "Generation": first.split("/")[-2]}
        self._send("Update", back, PhysicalResourceId=second, OldResourceProperties=self._with("2"))
        self._send("Delete", self._with("2"), PhysicalResourceId=second)
        self._send("Delete", self._with("1"), PhysicalResourceId=first)
        # By another client, whose look is none of the store's.
        left = boto3.client("s3", region_name=REGION).list_objects_v2(Bucket=self._properties["Bucket"])
        assert "Contents" not in left

    def _with(self, batch_size: str) -> dict[str, Any]:
        models = {name: {**model, "batch_size": batch_size} for name, model in self._properties["Models"].items()}
        return {**self._properties, "Models": models}

    def _send(self, kind: str, properties: dict[str, Any], **fields: Any) -> str:
        event = {"RequestType": kind, "ResponseURL": "https://x", "RequestId": "1", "StackId": "s", **fields}
        context = type("Context", (), {"get_remaining_time_in_millis": lambda _self: 300_000})()
        index.on_event({**event, "LogicalResourceId": "Store", "ResourceProperties": properties}, context)
        answer = self._answers.pop()
        assert answer["Status"] == "SUCCESS", answer
        return str(answer["PhysicalResourceId"])

    def _push(self) -> None:
        """Store weights as `cohost weights push` does; the part is just large enough for a copy inside S3."""
        self._client.put_object(Bucket=WEIGHTS, Key=f"manifests/org/name/{REVISION}.json", Body=b"{}")
        self._client.put_object(
            Bucket=WEIGHTS,
            Key=f"packed/org/name/{REVISION}.part",
            Body=bytes(5 * 1024 * 1024),
            Metadata={CRC: "0", PLAIN_BYTES: "0"},
        )


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Request]]:
    """Run a design's model store with an S3 in memory, and return each request that it made."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)

    def run(design: str) -> list[Request]:
        with mock_aws():
            life = Life(design, monkeypatch)
            life.run()
        return life.recorder.requests

    return run


@pytest.mark.parametrize("design", ["multi-model", "scale-to-zero", "weights-s3", "weights-archive", "keys"])
def test_function_may_make_each_call_that_it_makes(design: str, live: Callable[[str], list[Request]]) -> None:
    """The publishing function has the right for each of its calls, including those of a rollback."""
    function = role(design, "ModelStoreRole")
    made = live(design)
    assert refused(design, function, made) == []
    granted = {
        action
        for statement in policies(design).statements(function)
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    # An upload is ended only when it failed; the log is written by Lambda, and the key used by S3.
    unmade = {"s3:AbortMultipartUpload"} if design == "weights-archive" else set()
    unmade |= {"logs:CreateLogStream", "logs:PutLogEvents"} | ({"kms:Decrypt", "kms:GenerateDataKey"} & granted)
    assert granted == {one.action for one in made} | unmade


@pytest.mark.parametrize("design", DESIGNS)
def test_function_may_do_nothing_else(design: str) -> None:
    """The publishing function has no right on other prefixes and buckets, weights, SageMaker or IAM."""
    bucket, arn = archives(design), f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/lmi"
    forbidden = [
        s3("PutObject", bucket, "other/x"),
        s3("GetObject", bucket, "encoders"),
        s3("DeleteObject", "somebody-else", "encoders/x"),
        s3("PutObject", WEIGHTS, f"weights/org/name/{REVISION}/model.safetensors"),
        s3("GetObject", WEIGHTS, f"weights/org/name/{REVISION}/model.safetensors"),
        s3("DeleteObject", WEIGHTS, f"manifests/org/name/{REVISION}.json"),
        s3("DeleteBucket", bucket),
        s3("PutBucketPolicy", bucket),
        s3("GetObjectVersion", bucket, "encoders/x"),
        listing(bucket, ""),
        listing(bucket, "other/"),
        listing(WEIGHTS, "weights/"),
        s3("ListBucket", bucket),
        on("sagemaker:DeleteEndpoint", arn),
        on("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/any"),
        on("kms:Decrypt", KEY),
        on("kms:Decrypt", OTHER_KEY, **{"kms:ViaService": f"s3.{REGION}.amazonaws.com"}),
        on("logs:CreateLogGroup", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:other"),
    ]
    function = role(design, "ModelStoreRole")
    assert [one for one in forbidden if policies(design).allows(function, one)] == []


def of_the_container(design: str) -> list[Request]:
    """Return the requests of SageMaker and the container with the execution role (SageMaker guide: CreateModel)."""
    bucket, plain = archives(design), f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/sagemaker/Endpoints/lmi"
    image = f"arn:aws:ecr:{REGION}:763104351884:repository/djl-inference"
    groups = [plain]
    if "zero" in design:
        groups.append(plain.replace("Endpoints/lmi", "InferenceComponents/lmi-models"))
    return [
        s3("GetObject", bucket, "encoders/0123456789ab/nli.tar.gz"),
        listing(bucket, "encoders/0123456789ab/"),
        on("ecr:GetAuthorizationToken", "*"),
        *(on(f"ecr:{name}", image) for name in ("BatchGetImage", "GetDownloadUrlForLayer")),
        *(
            on(f"logs:{name}", f"{group}:log-stream:x")
            for group in groups
            for name in ("CreateLogStream", "PutLogEvents")
        ),
        on("cloudwatch:PutMetricData", "*", **{"cloudwatch:namespace": "/aws/sagemaker/Endpoints"}),
    ]


WEIGHTS_READ = [s3("GetObject", WEIGHTS, f"weights/org/name/{REVISION}/x"), listing(WEIGHTS, "weights/org/name/")]
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
VIA_S3 = {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
FURTHER: dict[str, list[Request]] = {
    "weights-s3": WEIGHTS_READ,
    "weights-archive": WEIGHTS_READ,
    "own-weights": [s3("GetObject", "mine", "models/nli/x"), listing("mine", "models/nli/")],
    "own-weights-key": [s3("GetObject", "locked", "models/nli/x"), on("kms:Decrypt", WEIGHTS_KEY, **VIA_S3)],
    "keys": [on("kms:Decrypt", KEY, **VIA_S3)],
    "data-capture-key": [on("kms:Decrypt", KEY, **VIA_S3)],
    "network": [
        *WEIGHTS_READ,
        on("ec2:CreateNetworkInterface", f"{EC2}:subnet/subnet-01234567"),
        on("ec2:CreateNetworkInterface", f"{EC2}:security-group/sg-01234567"),
        *(
            on(f"ec2:{name}", f"{EC2}:network-interface/eni-1", **{"ec2:Subnet": f"{EC2}:subnet/subnet-01234567"})
            for name in ("CreateNetworkInterface", "CreateNetworkInterfacePermission", "DeleteNetworkInterface")
        ),
        on("ec2:DescribeVpcs", "*"),
    ],
}


@pytest.mark.parametrize("design", DESIGNS)
def test_container_may_do_what_serving_needs(design: str) -> None:
    """The container's role may read archives and image, write log and metrics, and use the design's resources."""
    execution = role(design, "EndpointExecutionRole")
    assert refused(design, execution, [*of_the_container(design), *FURTHER.get(design, [])]) == []


@pytest.mark.parametrize("design", DESIGNS)
def test_container_may_do_nothing_else(design: str) -> None:
    """The container's role cannot change archives, read other buckets, or call other AWS APIs."""
    bucket = archives(design)
    forbidden = [
        s3("PutObject", bucket, "encoders/0123456789ab/nli.tar.gz"),
        s3("DeleteObject", bucket, "encoders/0123456789ab/nli.tar.gz"),
        s3("GetObject", bucket, "other/x"),
        listing(bucket, ""),
        s3("GetObject", "somebody-else", "encoders/0123456789ab/nli.tar.gz"),
        s3("PutObject", WEIGHTS, f"weights/org/name/{REVISION}/x"),
        s3("GetObject", WEIGHTS, "other/x"),
        s3("GetObject", "mine", "models/other/x"),
        on("ecr:BatchGetImage", f"arn:aws:ecr:{REGION}:763104351884:repository/other"),
        on("ecr:PutImage", f"arn:aws:ecr:{REGION}:763104351884:repository/djl-inference"),
        on("cloudwatch:PutMetricData", "*", **{"cloudwatch:namespace": "Own"}),
        on("logs:PutLogEvents", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/other:log-stream:x"),
        on("logs:GetLogEvents", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/sagemaker/Endpoints/lmi:log-stream:x"),
        on("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:hub"),
        on("ssm:GetParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/hub"),
        on("sagemaker:InvokeEndpoint", f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/lmi"),
        on("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/any"),
        on("kms:Decrypt", OTHER_KEY, **VIA_S3),
        on("ec2:CreateNetworkInterface", f"{EC2}:subnet/subnet-99999999"),
        on("ec2:DeleteNetworkInterface", f"{EC2}:network-interface/eni-1", **{"ec2:Subnet": f"{EC2}:subnet/other"}),
    ]
    own = FURTHER.get(design, [])
    forbidden += [one for further in FURTHER.values() for one in further if one not in own]
    execution = role(design, "EndpointExecutionRole")
    assert [one for one in forbidden if policies(design).allows(execution, one)] == []


@pytest.mark.parametrize("design", ["data-capture", "data-capture-key"])
def test_captured_calls_can_be_written_and_not_read(design: str) -> None:
    """The container may write captured calls below their prefix, but not read them."""
    [bucket] = [name for name in resources(template(design), "AWS::S3::Bucket") if name.startswith("DataCapture")]
    name, execution = policies(design).name(bucket), role(design, "EndpointExecutionRole")
    _, config = only(template(design), "AWS::SageMaker::EndpointConfig")
    place = policies(design).resolve(config["Properties"]["DataCaptureConfig"]["DestinationS3Uri"])
    assert place.startswith(f"s3://{name}/")
    key = place.removeprefix(f"s3://{name}/") + "lmi/AllTraffic/2026/11/30/x.jsonl"
    assert refused(design, execution, [s3("PutObject", name, key)]) == []
    assert len(refused(design, execution, [s3("GetObject", name, key), s3("DeleteObject", name, key)])) == 2


def scheduled(design: str) -> dict[str, list[Request]]:
    """Return the requests of each schedule's role, from the schedule's target."""
    found: dict[str, list[Request]] = {}
    for schedule in resources(template(design), "AWS::Scheduler::Schedule").values():
        target = policies(design).resolve(schedule["Properties"]["Target"])
        who = next(name for name in policies(design).roles() if policies(design).arn(name) == target["RoleArn"])
        found.setdefault(who, []).append(_call_of(target))
    return found


def _call_of(target: dict[str, Any]) -> Request:
    if ":sns:" in target["Arn"]:
        return on("sns:Publish", target["Arn"])
    *_, service, operation = target["Arn"].split(":")
    told, start = json.loads(target["Input"]), f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
    if service == "applicationautoscaling":
        return on(
            f"application-autoscaling:{operation}",
            f"arn:aws:application-autoscaling:{REGION}:{ACCOUNT}:scalable-target/0123",
            **{
                "application-autoscaling:service-namespace": told["ServiceNamespace"],
                "application-autoscaling:scalable-dimension": told["ScalableDimension"],
            },
        )
    name = told.get("EndpointName")
    resource = f"{start}:endpoint/{name}" if name else f"{start}:inference-component/{told['InferenceComponentName']}"
    return on(f"{service}:{operation}", resource)


def test_the_end_of_a_scaled_endpoint_may_deregister_its_variant_and_no_other_target() -> None:
    """The expiry of a scaled endpoint may deregister its scalable target, which its deletion needs."""
    target = f"arn:aws:application-autoscaling:{REGION}:{ACCOUNT}:scalable-target/0123"
    of_variants = {
        "application-autoscaling:service-namespace": "sagemaker",
        "application-autoscaling:scalable-dimension": "sagemaker:variant:DesiredInstanceCount",
    }
    of_others = {
        **of_variants,
        "application-autoscaling:scalable-dimension": "sagemaker:inference-component:DesiredCopyCount",
    }
    deregister = "application-autoscaling:DeregisterScalableTarget"
    for design, allowed in (("expiry-scaled", True), ("expiry", False)):
        [who] = scheduled(design)
        assert policies(design).allows(who, on(deregister, target, **of_variants)) is allowed
        assert not policies(design).allows(who, on(deregister, target, **of_others))


def test_updates_with_guardrails_may_read_the_alarms_that_take_them_back() -> None:
    """The execution role may read the guardrails' alarms (SageMaker developer guide, auto-rollback)."""
    start = f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm"
    who = role("guarded", "EndpointExecutionRole")
    assert policies("guarded").allows(who, on("cloudwatch:DescribeAlarms", f"{start}:errors-of-another-stack"))
    assert not policies("guarded").allows(who, on("cloudwatch:DescribeAlarms", f"{start}:other"))


@pytest.mark.parametrize("design", ["expiry", "expiry-scaled", "expiry-zero", "expiry-key"])
def test_schedules_may_end_their_endpoint_and_nothing_else(design: str) -> None:
    """The schedules' role may make the call of each target, but no call to another endpoint or topic."""
    found = scheduled(design)
    assert sum(map(len, found.values())) == len(resources(template(design), "AWS::Scheduler::Schedule")) > 1
    start = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
    forbidden = [
        on("sagemaker:DeleteEndpoint", f"{start}:endpoint/other"),
        on("sagemaker:DeleteModel", f"{start}:model/lmi"),
        on("sagemaker:DeleteEndpointConfig", f"{start}:endpoint-config/lmi"),
        on("sagemaker:CreateEndpoint", f"{start}:endpoint/lmi"),
        on("sagemaker:UpdateInferenceComponentRuntimeConfig", f"{start}:inference-component/other"),
        on("sns:Publish", f"arn:aws:sns:{REGION}:{ACCOUNT}:other"),
        on(
            "application-autoscaling:RegisterScalableTarget",
            f"arn:aws:application-autoscaling:{REGION}:{ACCOUNT}:scalable-target/0123",
            **{"application-autoscaling:service-namespace": "dynamodb"},
        ),
        s3("GetObject", archives(design), "encoders/0123456789ab/nli.tar.gz"),
    ]
    for who, calls in found.items():
        assert refused(design, who, calls) == []
        assert [one for one in forbidden if policies(design).allows(who, one)] == []


@pytest.mark.parametrize("design", ["expiry", "expiry-zero"])
def test_function_that_reads_the_clock_may_only_write_its_log(design: str) -> None:
    """The function that computes the moment of expiry may only write its log."""
    [clock] = [name for name in policies(design).roles() if "EndOfLife" in name or "Moment" in name]
    assert {action for statement in policies(design).statements(clock) for action in statement["Action"]} == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }


@pytest.mark.parametrize("design", DESIGNS)
def test_no_role_goes_unnoticed(design: str) -> None:
    """Every role is tested in this file; no action has a wildcard, and few actions name every resource."""
    wide = {"ecr:GetAuthorizationToken", "cloudwatch:PutMetricData", "ec2:DeleteNetworkInterfacePermission"}
    services = sorted(policies(design).roles().values())
    expected = ["lambda.amazonaws.com", "sagemaker.amazonaws.com"]
    if "expiry" in design:
        expected += ["scheduler.amazonaws.com"] + (["lambda.amazonaws.com"] if design != "expiry-key" else [])
    assert services == sorted(expected)
    for who in policies(design).roles():
        for statement in policies(design).statements(who):
            actions = {statement["Action"]} if isinstance(statement["Action"], str) else set(statement["Action"])
            assert not [action for action in actions if "*" in action]
            if statement["Resource"] == "*":
                assert {action for action in actions if not action.startswith("ec2:Describe")} <= wide


@pytest.mark.parametrize("design", ["multi-model", "data-capture"])
def test_buckets_answer_over_tls_only_and_are_never_public(design: str) -> None:
    """Every request without TLS is denied, whatever the role may do; each bucket rejects public access."""
    function, bucket = role(design, "ModelStoreRole"), archives(design)
    plain = {"aws:SecureTransport": "false"}
    key = f"arn:aws:s3:::{bucket}/encoders/x"
    assert policies(design).allows(function, Request(action="s3:PutObject", resource=key, context=TLS))
    assert not policies(design).allows(function, Request(action="s3:PutObject", resource=key, context=plain))
    found = resources(template(design), "AWS::S3::BucketPolicy").values()
    denied = [policies(design).resolve(policy["Properties"]) for policy in found]
    buckets = resources(template(design), "AWS::S3::Bucket")
    assert {one["Bucket"] for one in denied} == set(map(policies(design).name, buckets))
    for one in denied:
        assert any(
            statement["Effect"] == "Deny" and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in one["PolicyDocument"]["Statement"]
        )
    for one in buckets.values():
        assert set(one["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}


def test_weights_bucket_answers_over_tls_only_and_is_never_public() -> None:
    """The bucket of the weights requires TLS and rejects public access."""
    catalog = Catalog.model_validate(
        {
            "endpoint": {"name": "l", "instance_type": "ml.g5.xlarge", "image": "djl-inference:0.36.0-lmi26.0.0-cu130"},
            "models": {"nli": {**PUSHED, "weights": "s3"}},
        }
    )
    app = cdk.App(context=FLAGS, analytics_reporting=False)
    made = template_of(LmiCohostWeightsStack(app, "Weights", catalog=catalog))
    _, bucket = only(made, "AWS::S3::Bucket")
    _, policy = only(made, "AWS::S3::BucketPolicy")
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Deny", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("topology", ["multi-model", "scale-to-zero"])
def test_caller_may_call_and_wait_and_do_nothing_else(topology: str) -> None:
    """grant_invoke allows the call, and at zero copies also reading the number of copies."""
    catalog = Catalog.model_validate(
        {
            "endpoint": {
                "name": "lmi",
                "instance_type": "ml.g5.xlarge",
                "image": "djl-inference:0.36.0-lmi26.0.0-cu130",
                "topology": topology,
            },
            "models": {"nli": {"model_id": "org/name", "task": "text-classification"}},
        }
    )
    stack = make_stack(catalog)
    caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    stack.endpoint.grant_invoke(caller)
    rights = Policies(template_of(stack))
    [who] = [name for name in rights.roles() if name.startswith("Caller")]
    start = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
    calls = [on("sagemaker:InvokeEndpoint", f"{start}:endpoint/lmi")]
    if topology == "scale-to-zero":
        component = f"{start}:inference-component/lmi-models"
        calls += [on("sagemaker:InvokeEndpoint", component), on("sagemaker:DescribeInferenceComponent", component)]
    forbidden = [
        on("sagemaker:InvokeEndpoint", f"{start}:endpoint/other"),
        on("sagemaker:DescribeInferenceComponent", f"{start}:inference-component/other"),
        on("sagemaker:UpdateEndpoint", f"{start}:endpoint/lmi"),
        on("sagemaker:UpdateInferenceComponentRuntimeConfig", f"{start}:inference-component/lmi-models"),
        s3("GetObject", "any", "encoders/x"),
    ]
    assert [one for one in calls if not rights.allows(who, one)] == []
    assert [one for one in forbidden if rights.allows(who, one)] == []
