"""The two least policies of `cohost rights`: which names, actions and conditions follow from a template."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fakes.refusals import refused
from typer.testing import CliRunner

from cohost import cli
from cohost.deploy.rights.commands import COMMANDS
from cohost.deploy.rights.policies import (
    POLICY_LIMIT,
    Caller,
    Place,
    StackRights,
    cloudformation_policies,
    expand,
    size,
)

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place(partition="aws", region="eu-west-1", account="123456789012")
ARN = "arn:aws:{}:eu-west-1:123456789012:{}"


def stack(name: str = "Own", **resources: Any) -> StackRights:
    """A stack of resources, each a type and its properties."""
    found = {logical: {"Type": kind, "Properties": given} for logical, (kind, given) in resources.items()}
    return StackRights(name, {"Resources": found}, PLACE)


def granted(*stacks: StackRights) -> dict[str, set[str]]:
    """The resources on which CloudFormation's role may do each action."""
    found: dict[str, set[str]] = {}
    for document in cloudformation_policies(stacks):
        assert document["Version"] == "2012-10-17"
        for statement in document["Statement"]:
            resources = statement["Resource"]
            for action in statement["Action"]:
                found.setdefault(action, set()).update([resources] if isinstance(resources, str) else resources)
    return found


def test_stated_name_is_granted_alone_and_a_generated_one_by_its_beginning() -> None:
    """The policy names no other endpoint, and what CloudFormation will name begins with the stack or the logical id."""
    own = stack(
        Endpoint=("AWS::SageMaker::Endpoint", {"EndpointName": "Lmi"}),
        Model4711=("AWS::SageMaker::Model", {}),
        Bucket=("AWS::S3::Bucket", {}),
    )
    found = granted(own)
    assert found["sagemaker:DeleteEndpoint"] == {ARN.format("sagemaker", f"endpoint/{name}") for name in ("Lmi", "lmi")}
    assert found["sagemaker:CreateModel"] == {
        ARN.format("sagemaker", f"model/{name}") for name in ("Own-*", "own-*", "Model4711-*", "model4711-*")
    }
    assert found["s3:CreateBucket"] == {"arn:aws:s3:::own-*"}


def test_long_name_of_a_stack_is_cut_where_cloudformation_may_cut_it() -> None:
    """Of a long name only the first characters are sure to be in a generated one."""
    name = "A-stack-with-a-name-of-more-than-24-characters"
    found = granted(stack(name, Role=("AWS::IAM::Role", {})))
    assert found["iam:CreateRole"] == {f"arn:aws:iam::123456789012:role/{name[:24]}*"}


def test_rights_of_a_property_come_with_the_property() -> None:
    """Without managed policies no right to attach any; with a key the rights on that key."""
    assert "iam:AttachRolePolicy" not in granted(stack(Role=("AWS::IAM::Role", {})))
    assert "iam:AttachRolePolicy" in granted(stack(Role=("AWS::IAM::Role", {"ManagedPolicyArns": ["arn:aws:x"]})))
    key = "arn:aws:kms:eu-west-1:123456789012:key/1"
    config = ("AWS::SageMaker::EndpointConfig", {"KmsKeyId": key})
    assert granted(stack(Config=config))["kms:CreateGrant"] == {key}
    assert "kms:CreateGrant" not in granted(stack(Config=("AWS::SageMaker::EndpointConfig", {})))


def test_role_is_passed_to_its_service_alone() -> None:
    """CloudFormation may hand the stack's role to Lambda, and neither another role nor to another service."""
    own = stack(
        Role=("AWS::IAM::Role", {}), Function=("AWS::Lambda::Function", {"Role": {"Fn::GetAtt": ["Role", "Arn"]}})
    )
    (document,) = cloudformation_policies([own])
    (passing,) = [one for one in document["Statement"] if "iam:PassRole" in one["Action"]]
    assert passing == {
        "Effect": "Allow",
        "Action": ["iam:PassRole"],
        "Resource": "arn:aws:iam::123456789012:role/Own-*",
        "Condition": {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}},
    }


def test_resource_of_an_unknown_type_is_an_error() -> None:
    """A policy that lacks the rights of a resource would fail the deploy, so none is printed."""
    with refused("rights-unknown", "resource Queue"):
        cloudformation_policies([stack(Queue=("AWS::SQS::Queue", {}))])


def test_policies_too_long_for_one_are_several() -> None:
    """Each is short enough for a managed policy, and none of the statements is lost."""
    topics = {
        f"Topic{number}": ("AWS::SNS::Topic", {"TopicName": f"a-topic-with-a-rather-long-name-{number}" * 4})
        for number in range(100)
    }
    buckets = {f"Policy{number}": ("AWS::S3::BucketPolicy", {"Bucket": f"bucket-{number}" * 5}) for number in range(90)}
    with pytest.raises(AssertionError):
        # One statement with all topics is longer than a policy may be.
        assert size(cloudformation_policies([stack(**topics)])[0]) <= POLICY_LIMIT
    documents = cloudformation_policies([stack(**buckets, Role=("AWS::IAM::Role", {}), **dict([*topics.items()][:5]))])
    assert len(documents) > 1


def test_value_that_a_catalog_lacks_grants_nothing() -> None:
    """A pattern without a value yields no ARN, and an ARN as the value is yielded as it is."""
    assert list(expand("arn:{a}:x", {"a": ()})) == []
    assert list(expand("role/{a}", {"a": ("arn:aws:iam::1:role/x", "y")})) == ["arn:aws:iam::1:role/x", "role/y"]


def test_caller_gets_the_rights_of_the_named_commands_alone() -> None:
    """A pipeline that only deploys may neither remove anything nor call the endpoint."""
    own = stack(Endpoint=("AWS::SageMaker::Endpoint", {"EndpointName": "lmi"}))
    caller = Caller(stacks=[own], values={"stack": ("Own",), "endpoint": ("lmi",), "prefix": ("a/",), "bucket": ("b",)})
    actions = {action for one in caller.policies(["deploy"]) for s in one["Statement"] for action in s["Action"]}
    assert "sts:AssumeRole" in actions
    assert not actions & {"cloudformation:DeleteStack", "sagemaker:InvokeEndpoint", "sagemaker:DeleteEndpoint"}
    everything = caller.policies(COMMANDS)
    assert all(size(one) <= POLICY_LIMIT for one in everything)
    listing = [s for one in everything for s in one["Statement"] if s["Action"] == ["s3:ListBucket"]]
    assert listing[0]["Condition"] == {"StringLike": {"s3:prefix": "a/*"}}


def assembly(_stack: str, _catalog: Path, folder: Path) -> None:
    """Write what `cdk synth` would: a stack that depends on the one of the weights."""

    def artifact(name: str, *dependencies: str) -> dict[str, Any]:
        kind = "aws:cloudformation:stack"
        return {"type": kind, "properties": {"templateFile": f"{name}.json"}, "dependencies": dependencies}

    artifacts = {"LmiCohostStack": artifact("LmiCohostStack", "W", "assets"), "W": artifact("W")}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {**artifacts, "assets": {"type": "cdk:asset"}}}))
    endpoint = {"Type": "AWS::SageMaker::Endpoint", "Properties": {"EndpointName": "lmi"}}
    version = {"Default": "/cdk-bootstrap/ours/version"}
    templates: dict[str, Any] = {
        "LmiCohostStack": {"Resources": {"Endpoint": endpoint}, "Parameters": {"BootstrapVersion": version}},
        "W": {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "weights"}}}},
    }
    for name, template in templates.items():
        (folder / f"{name}.json").write_text(json.dumps(template))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """Run the command without cdk."""
    monkeypatch.setattr("cohost.commands.rights.synthesise", assembly)
    return CliRunner().invoke(cli.app, ["rights", *arguments])


def test_command_prints_and_writes_both_policies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The bootstrap's qualifier, the stacks that the named one depends on, and the account are in the ARNs."""
    arguments = ("--account", "111122223333", "--command", "deploy")
    result = run(monkeypatch, *arguments, "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for name, documents in found.items():
        assert [json.loads((tmp_path / "out" / f"{name}-1.json").read_text())] == documents
    assert set(found) == {"caller", "cloudformation"}
    assert "role/cdk-ours-deploy-role-111122223333-us-east-1" in json.dumps(found["caller"])
    assert "arn:aws:s3:::weights" in json.dumps(found["cloudformation"])
    plain = run(monkeypatch, *arguments)
    assert json.loads(plain.stdout.partition("\n}\n")[0] + "\n}") == found["caller"][0]


def test_unknown_command_or_stack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what is allowed."""
    with refused("command-unknown", "--command"):
        raise run(monkeypatch, "--account", "111122223333", "--command", "plan").exception
    with refused("stack-not-in-catalog", "--stack"):
        raise run(monkeypatch, "--account", "111122223333", "--stack", "Other").exception


@pytest.mark.parametrize("account", ["abc", "12345678901", "1234567890123", "12345678901x", ""])
def test_an_account_has_twelve_digits(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    """An account's number of another form would print policies that match no resource."""
    with refused("account-malformed", "--account"):
        raise run(monkeypatch, "--account", account).exception


def test_a_folder_that_cannot_be_written_to_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the option and the folder, instead of a traceback."""
    (tmp_path / "file").touch()
    arguments = ("--account", "111122223333", "--command", "status", "--out", str(tmp_path / "file" / "below"))
    with refused("policies-not-writable", "--out"):
        raise run(monkeypatch, *arguments).exception
