"""`cohost rollback`: the choice of the generation, the new template, and its rejections."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from fakes.refusals import refused

from cohost.archives.handlers import handler_version
from cohost.archives.history import Earlier
from cohost.deploy.rollback import (
    BODY_BYTES,
    check_engine_version,
    check_topology,
    choose,
    differences,
    present_models,
    template_of,
    update,
)
from cohost.endpoint.stack_outputs import Deployment, read_template
from cohost.errors import StackError

NOW = {
    "nli": {"engine": "Python", "option.model_id": "org/nli", "option.task": "text-classification", "batch_size": "8"},
    "mini": {"engine": "Python", "option.model_id": "org/mini", "option.task": "text-classification"},
}
THEN = {"nli": {**NOW["nli"], "batch_size": "4"}, "zero": {**NOW["nli"], "option.task": "zero-shot-classification"}}
STATUS = {"StackName": "LmiCohostStack", "CreationTime": "2026-01-01T00:00:00Z"}


def deployment(**changes: Any) -> Deployment:
    """A multi-model deployment, with fields changed."""
    fields: dict[str, Any] = {
        "stack_name": "LmiCohostStack",
        "endpoint_name": "lmi",
        "bucket": "models",
        "prefix": "p/",
        "generation": "bbbbbbbbbbbb",
        "model_data_url": "s3://models/p/bbbbbbbbbbbb/",
        "region": "us-east-1",
        "topology": "multi-model",
        "models": {"nli": "nli.tar.gz"},
    }
    return Deployment(**{**fields, **changes})


def template(**properties: Any) -> dict[str, Any]:
    """Return a deployed template with a model store of the present models, with changed properties."""
    store = {
        "ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]},
        "ServiceTimeout": "960",
        "Bucket": {"Ref": "Bucket"},
        "Prefix": "p/",
        "KeepGenerations": "2",
        "Models": NOW,
        "Handlers": {"nli": "batched@new"},
        **properties,
    }
    return {
        "Resources": {
            "Store": {"Type": "Custom::LmiModelStore", "Properties": store},
            "Endpoint": {"Type": "AWS::SageMaker::Endpoint", "Properties": {"EndpointName": "lmi"}},
        },
        "Outputs": {
            "Models": {"Value": json.dumps({"nli": "nli.tar.gz", "mini": "mini.tar.gz"})},
            "ExampleCall": {"Value": "aws sagemaker-runtime …"},
            "Region": {"Value": "us-east-1"},
        },
    }


def earlier(generation: str = "aaaaaaaaaaaa", **properties: Any) -> Earlier:
    """A generation that served until a moment, with properties changed."""
    return Earlier(generation=generation, left="2026-11-30T10:00:00.000000Z", properties={"Models": THEN, **properties})


def test_last_one_is_chosen_and_another_by_its_id() -> None:
    """A rollback without --to chooses the generation that served before; with --to it chooses the named one."""
    stored = [earlier("aaaaaaaaaaaa"), earlier("cccccccccccc")]
    assert choose(stored, None).generation == "aaaaaaaaaaaa"
    assert choose(stored, "cccccccccccc").generation == "cccccccccccc"


@pytest.mark.parametrize(
    ("stored", "wanted", "code", "allowed"),
    [
        ([], None, "generations-not-kept", "storage.keep_generations"),
        ([earlier()], "dddddddddddd", "generation-unknown", "aaaaaaaaaaaa"),
    ],
)
def test_generation_that_is_not_stored_is_refused(
    stored: list[Earlier], wanted: str | None, code: str, allowed: str
) -> None:
    """An unknown generation is rejected with the stored ones, or with the setting that stores some."""
    with refused(code, "--to", kind=StackError) as caught:
        choose(stored, wanted)
    assert allowed in caught.value.allowed


def test_template_names_the_generation_and_what_it_was_published_from() -> None:
    """The template gets the models and settings of the earlier generation; all other properties stay."""
    before = template()
    changed = template_of(before, deployment(), earlier(Requirements={"nli": "torch==2.11.0"}))
    assert changed["Resources"]["Store"]["Properties"] == {
        "ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]},
        "ServiceTimeout": "960",
        "Bucket": {"Ref": "Bucket"},
        "Prefix": "p/",
        "KeepGenerations": "2",
        "Models": THEN,
        "Requirements": {"nli": "torch==2.11.0"},
        "Generation": "aaaaaaaaaaaa",
    }
    assert changed["Resources"]["Endpoint"] == before["Resources"]["Endpoint"]
    assert json.loads(changed["Outputs"]["Models"]["Value"]) == {"nli": "nli.tar.gz", "zero": "zero.tar.gz"}
    assert changed["Outputs"]["ExampleCall"] == before["Outputs"]["ExampleCall"]
    assert before == template()


def test_outputs_say_again_what_the_models_were() -> None:
    """The output with the models' handlers is restored, because clients wait for restarts by it."""
    before = template()
    before["Outputs"]["Kinds"] = {"Value": "{}"}

    changed = template_of(before, deployment(), earlier(Handlers={"nli": "batched@old"}))

    kinds = {"nli": "batched/text-classification", "zero": "stock/zero-shot-classification"}
    assert json.loads(changed["Outputs"]["Kinds"]["Value"]) == kinds


def test_example_call_names_a_model_that_is_there() -> None:
    """After a rollback the example call names a model of the restored generation, with the parameters of its task."""
    then = earlier(Models={"zero": THEN["zero"]})
    words = template_of(template(), deployment(), then)["Outputs"]["ExampleCall"]["Value"]
    assert "--target-model zero.tar.gz" in words
    assert "candidate_labels" in words


def test_rollback_of_a_component_names_models_as_its_container_does() -> None:
    """A rollback of a component writes the container's model names into the outputs."""
    one = deployment(topology="scale-to-zero", inference_component_name="lmi-models")
    changed = template_of(template(Layout="bundle"), one, earlier(Layout="bundle", Models={"zero": THEN["zero"]}))
    assert json.loads(changed["Outputs"]["Models"]["Value"]) == {"zero": "zero"}
    assert "--inference-component-name lmi-models" in changed["Outputs"]["ExampleCall"]["Value"]


def test_second_rollback_leaves_the_first_s_mark_behind() -> None:
    """A second rollback names only its own generation, and the name of the weights bucket stays as in the template."""
    sub = {"Fn::Sub": "weights-${AWS::AccountId}"}
    before = template(Generation="bbbbbbbbbbbb", WeightsBucket=sub)
    store = template_of(before, deployment(), earlier(WeightsBucket="weights-123"))["Resources"]["Store"]["Properties"]
    assert store["Generation"] == "aaaaaaaaaaaa"
    assert store["WeightsBucket"] == sub


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"Layout": "bundle"}, "another topology's archives"),
        ({"WeightsBucket": "weights-123"}, "weights in S3"),
        ({"Models": {"own": {"option.model_id": "s3://mine/model/"}}}, "weights of s3://mine/model/"),
    ],
)
def test_what_only_a_deploy_would_bring_is_refused(properties: dict[str, Any], text: str) -> None:
    """A rollback that needs more than archives is rejected with the missing part and the fix."""
    with refused("generation-unservable", "generation aaaaaaaaaaaa", kind=StackError) as caught:
        template_of(template(), deployment(), earlier(**properties))
    assert text in caught.value.problem


def test_pushed_weights_are_no_obstacle() -> None:
    """A rollback to another pushed revision is allowed, because the container may read all pushed weights."""
    then = {"nli": {"option.model_id": "s3://{WeightsBucket}/weights/org/nli/" + "0" * 40 + "/"}}
    weights = {"WeightsBucket": "weights-123"}
    assert template_of(template(**weights), deployment(), earlier(Models=then, **weights))


def test_comparison_designs_are_refused() -> None:
    """A rollback of a stack of the comparison designs is rejected."""
    with refused("rollback-unsupported", kind=StackError):
        check_topology(deployment(topology="cpu-onnx"))


@pytest.mark.parametrize("count", [0, 2])
def test_template_of_another_stack_is_refused(count: int) -> None:
    """A rollback of a template without exactly one model store is rejected."""
    stores = {f"Store{number}": {"Type": "Custom::LmiModelStore"} for number in range(count)}
    with refused("store-ambiguous", kind=StackError):
        present_models({"Resources": stores})


def test_differences_are_told_model_by_model() -> None:
    """`cohost rollback` lists each model that will be added, removed or changed before it changes the stack."""
    assert differences(present_models(template()), THEN) == [
        "zero: comes back",
        "mini: goes",
        "nli: batch_size 8 → 4",
    ]
    assert differences({"a": {}}, {"a": {"x": "1"}}) == ["a: x unset → 1"]


def event(number: int, status: str, reason: str = "") -> dict[str, Any]:
    """An event of the endpoint."""
    return {
        "StackId": "arn",
        "EventId": str(number),
        "StackName": "LmiCohostStack",
        "LogicalResourceId": "Endpoint",
        "ResourceType": "AWS::SageMaker::Endpoint",
        "Timestamp": datetime(2099, 1, 1, tzinfo=UTC),
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }


def stubbed(statuses: list[tuple[str, list[dict[str, Any]]]], **handed: Any) -> Any:
    """Return a CloudFormation client that accepts an update and returns these statuses and events."""
    client = boto3.client(
        "cloudformation", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    stub = Stubber(client)
    parameters = [{"ParameterKey": "BootstrapVersion", "ParameterValue": "/cdk"}]
    stack = {**STATUS, "StackStatus": "UPDATE_COMPLETE", "Parameters": parameters}
    stub.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "LmiCohostStack"})
    expected = {
        "StackName": "LmiCohostStack",
        "Capabilities": ANY,
        "Parameters": [{"ParameterKey": "BootstrapVersion", "UsePreviousValue": True}],
        **handed,
    }
    stub.add_response("update_stack", {"StackId": "arn"}, expected)
    for status, events in statuses:
        stub.add_response("describe_stacks", {"Stacks": [{**STATUS, "StackStatus": status}]})
        stub.add_response("describe_stack_events", {"StackEvents": events})
    stub.activate()
    return client


class Storage:
    """An S3 client that records stored and deleted objects."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.meta = type("Meta", (), {"endpoint_url": "https://s3.us-east-1.amazonaws.com"})

    def put_object(self, **arguments: Any) -> None:
        """Notes an upload."""
        self.calls.append(("put", arguments))

    def delete_object(self, **arguments: Any) -> None:
        """Notes a deletion."""
        self.calls.append(("delete", arguments))


def test_update_is_followed_to_its_end() -> None:
    """The update keeps the parameters of the stack, and its progress is printed until the end."""
    wanted: dict[str, Any] = {"Resources": {}}
    client = stubbed(
        [
            ("UPDATE_IN_PROGRESS", [event(1, "UPDATE_IN_PROGRESS")]),
            ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", [event(2, "UPDATE_COMPLETE"), event(1, "UPDATE_IN_PROGRESS")]),
            ("UPDATE_COMPLETE", [event(2, "UPDATE_COMPLETE"), event(1, "UPDATE_IN_PROGRESS")]),
        ],
        TemplateBody=json.dumps(wanted, separators=(",", ":")),
    )
    seen: list[str] = []
    update(
        client,
        Storage(),  # type: ignore[arg-type]
        deployment(),
        wanted,
        show=lambda progress: seen.append(progress.resources["Endpoint"][1]),
        poll_s=0,
    )
    assert seen == ["UPDATE_IN_PROGRESS", "UPDATE_COMPLETE", "UPDATE_COMPLETE"]


def test_long_template_lies_in_the_bucket_for_as_long_as_it_is_read() -> None:
    """A long template is stored below the model store's prefix during the update, and deleted afterwards."""
    storage = Storage()
    wanted = {"Resources": {"x": "y" * BODY_BYTES}}
    client = stubbed([("UPDATE_COMPLETE", [])], TemplateURL=ANY)
    update(client, storage, deployment(), wanted, show=lambda _: None, poll_s=0)  # type: ignore[arg-type]
    (put, uploaded), (delete, removed) = storage.calls
    assert (put, delete) == ("put", "delete")
    assert uploaded["Key"] == removed["Key"]
    assert uploaded["Key"].startswith("p/rollback/")
    assert json.loads(uploaded["Body"]) == wanted


def test_update_that_failed_tells_which_resource_and_why() -> None:
    """The error of a failed update has the resource and CloudFormation's reason."""
    client = stubbed(
        [("UPDATE_ROLLBACK_COMPLETE", [event(1, "UPDATE_FAILED", "the alarm went off")])], TemplateBody=ANY
    )
    with refused("update-failed", kind=StackError) as caught:
        update(client, Storage(), deployment(), {}, show=lambda _: None, poll_s=0)  # type: ignore[arg-type]
    assert "UPDATE_ROLLBACK_COMPLETE" in caught.value.problem
    assert "the alarm went off" in str(caught.value).splitlines()[1]


def test_refused_update_is_told_in_one_line() -> None:
    """If CloudFormation rejects the update, the error has CloudFormation's message in one line."""
    client = boto3.client(
        "cloudformation", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    stub = Stubber(client)
    stub.add_response("describe_stacks", {"Stacks": [{**STATUS, "StackStatus": "UPDATE_IN_PROGRESS"}]})
    stub.add_client_error("update_stack", "ValidationError", "Stack is in UPDATE_IN_PROGRESS state")
    stub.activate()
    with refused("update-refused", "stack LmiCohostStack", kind=StackError) as caught:
        update(client, Storage(), deployment(), {}, show=lambda _: None, poll_s=0)  # type: ignore[arg-type]
    assert "UpdateStack: Stack is in UPDATE_IN_PROGRESS state" in caught.value.problem


@pytest.mark.parametrize("body", ["Resources: {}", "[]"])
def test_template_that_cdk_did_not_write_is_refused(body: str) -> None:
    """A template that is not JSON is rejected, because cdk did not write it."""
    client = boto3.client(
        "cloudformation", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    stub = Stubber(client)
    stub.add_response("get_template", {"TemplateBody": body})
    stub.activate()
    with refused("template-not-json", kind=StackError):
        read_template(client, "s")


def test_a_pushed_shared_model_has_the_version_of_the_engine_process() -> None:
    """Another version would start a second engine process, with a context of its own; stock models have no version."""
    with refused("handler-version-differs", "models.new.handler", kind=StackError):
        check_engine_version(template(), "new", "shared")

    check_engine_version(template(Handlers={"nli": f"batched@{handler_version('shared')}"}), "new", "shared")
    check_engine_version(template(Handlers={}), "new", "shared")


def test_the_kinds_of_an_earlier_generation_are_its_handlers() -> None:
    """A shared model stays one, so that callers wait for its process as long as they should."""
    present = template()
    present["Outputs"] |= {"Kinds": {"Value": "{}"}}
    then = Earlier(
        generation="aaaaaaaaaaaa",
        left="2026-01-01T00:00:00+00:00",
        properties={"Models": THEN, "Handlers": {"nli": "shared@old"}},
    )
    changed = template_of(present, deployment(), then)
    assert json.loads(changed["Outputs"]["Kinds"]["Value"]) == {
        "nli": "shared/text-classification",
        "zero": "stock/zero-shot-classification",
    }
