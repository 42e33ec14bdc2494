"""Change sets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloud_fakes import World, body, settled, thing
from fakes.faults import faulted

from local_aws.cloudformation import operations, queries
from local_aws.cloudformation.change_sets import differences
from local_aws.cloudformation.operations import get_stack
from local_aws.cloudformation.templates.intrinsics import UNKNOWN

if TYPE_CHECKING:
    from local_aws.cloudformation.engine import Engine

CHAIN = {
    "Store": {
        "Type": "Custom::Store",
        "Properties": {"Content": "1", "Models": {"a": {"memory": "1"}, "b": {"x": "y"}}},
    },
    "Model": thing(Key={"Fn::GetAtt": ["Store", "Url"]}),
    "Endpoint": thing(Value={"Ref": "Model"}),
    "Reader": thing(Value={"Fn::GetAtt": ["Endpoint", "Arn"]}),
    "Apart": thing(Value="v"),
}


def deploy(engine: Engine, template: str, **request: Any) -> None:
    """Create and execute a change set."""
    plan(engine, template, kind="CREATE", **request)
    operations.execute_change_set(engine, {"StackName": "s", "ChangeSetName": "c"})
    settled(get_stack(engine.context, "s"))


def plan(engine: Engine, template: str, *, kind: str = "UPDATE", values: bool = True, **request: Any) -> dict[str, Any]:
    """The description of a change set."""
    operations.delete_change_set(engine, {"StackName": "s", "ChangeSetName": "c"}) if kind == "UPDATE" else None
    fixed = {"StackName": "s", "ChangeSetName": "c", "ChangeSetType": kind, "TemplateBody": template}
    operations.create_change_set(engine, {**fixed, **request})
    wanted = {"StackName": "s", "ChangeSetName": "c", "IncludePropertyValues": values}
    return queries.describe_change_set(engine, wanted)


def by_resource(description: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The changes by logical id."""
    changes = [change["ResourceChange"] for change in description["Changes"]]
    return {change["LogicalResourceId"]: change for change in changes}


def test_new_stack_is_under_review_until_it_is_executed(engine: Engine, world: World) -> None:
    """A change set of a new stack adds every resource, and creates none."""
    description = plan(engine, body(CHAIN), kind="CREATE")
    assert get_stack(engine.context, "s").status == "REVIEW_IN_PROGRESS"
    assert {one["Action"] for one in by_resource(description).values()} == {"Add"}
    assert (description["Status"], description["ExecutionStatus"]) == ("CREATE_COMPLETE", "AVAILABLE")
    assert world.calls == []
    operations.delete_stack(engine, {"StackName": "s"})
    assert engine.context.stacks[0].status == "DELETE_COMPLETE"


def test_same_template_has_no_changes(engine: Engine) -> None:
    """A change set without changes is empty, with the text that cdk looks for."""
    deploy(engine, body(CHAIN))
    description = plan(engine, body(CHAIN))
    assert description["Changes"] == []
    assert (description["Status"], description["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert description["StatusReason"].startswith("The submitted information didn't contain changes.")


def test_one_changed_setting_is_named_with_its_path_and_values(engine: Engine) -> None:
    """A change set names the changed key with its values, and dependent changes as dynamic."""
    deploy(engine, body(CHAIN))
    changed = json.loads(json.dumps(CHAIN))
    changed["Store"]["Properties"]["Models"]["a"]["memory"] = "2"
    changes = by_resource(plan(engine, body(changed)))
    assert set(changes) == {"Store", "Model", "Endpoint"}
    (detail,) = changes["Store"]["Details"]
    assert detail["Target"] == {
        "Attribute": "Properties",
        "Name": "Models",
        "RequiresRecreation": "Never",
        "Path": "/Properties/Models/a/memory",
        "AttributeChangeType": "Modify",
        "BeforeValue": "1",
        "AfterValue": "2",
    }
    assert (detail["Evaluation"], detail["ChangeSource"]) == ("Static", "DirectModification")
    (follower,) = changes["Model"]["Details"]
    assert changes["Model"]["Replacement"] == "Conditional"
    assert follower["CausingEntity"] == "Store.Url"
    assert (follower["Evaluation"], follower["ChangeSource"]) == ("Dynamic", "ResourceAttribute")
    assert follower["Target"]["AfterValue"] == UNKNOWN
    assert changes["Endpoint"]["Replacement"] == "False"
    assert changes["Endpoint"]["Details"][0]["ChangeSource"] == "ResourceReference"
    assert json.loads(changes["Store"]["AfterContext"])["Properties"]["Models"]["a"] == {"memory": "2"}


def test_values_are_told_only_on_request(engine: Engine) -> None:
    """Without IncludePropertyValues a change has one detail per property and no context."""
    deploy(engine, body({"A": thing(Value={"x": 1, "y": 1})}))
    (change,) = by_resource(plan(engine, body({"A": thing(Value={"x": 2, "y": 2})}), values=False)).values()
    assert "BeforeContext" not in change
    assert [detail["Target"] for detail in change["Details"]] == [
        {"Attribute": "Properties", "Name": "Value", "RequiresRecreation": "Never"}
    ]


def test_replacement_and_removal(engine: Engine) -> None:
    """A changed create-only property replaces its resource, and a missing resource is removed last."""
    deploy(engine, body({"A": thing(Key="1"), "B": thing(Value={"Ref": "A"}), "C": thing()}))
    description = plan(engine, body({"A": thing(Key="2"), "B": thing(Value={"Ref": "A"})}))
    changes = by_resource(description)
    assert (changes["A"]["Replacement"], changes["A"]["PolicyAction"]) == ("True", "ReplaceAndDelete")
    assert changes["B"]["Replacement"] == "False"
    assert list(changes)[-1] == "C"
    assert (changes["C"]["Action"], changes["C"]["PolicyAction"]) == ("Remove", "Delete")


def test_attribute_that_an_update_keeps_is_no_cause(engine: Engine) -> None:
    """A resource that reads an ARN which an update keeps is not in the change set."""
    deploy(engine, body({"A": thing(Value="1"), "B": thing(Value={"Fn::GetAtt": ["A", "Arn"]})}))
    assert set(
        by_resource(plan(engine, body({"A": thing(Value="2"), "B": thing(Value={"Fn::GetAtt": ["A", "Arn"]})})))
    ) == {"A"}
    reads = {"A": thing(Value="2"), "B": thing(Value={"Fn::GetAtt": ["A", "Value"]})}
    deploy_again = by_resource(plan(engine, body(reads)))
    assert set(deploy_again) == {"A", "B"}


def test_parameter_is_the_cause(engine: Engine) -> None:
    """A change by a parameter names it as the causing entity."""
    template = body({"A": thing(Value={"Ref": "P"})}, Parameters={"P": {"Type": "String"}})
    deploy(engine, template, Parameters=[{"ParameterKey": "P", "ParameterValue": "1"}])
    description = plan(engine, template, Parameters=[{"ParameterKey": "P", "ParameterValue": "2"}])
    (detail,) = by_resource(description)["A"]["Details"]
    assert (detail["CausingEntity"], detail["ChangeSource"], detail["Evaluation"]) == (
        "P",
        "ParameterReference",
        "Static",
    )


def test_metadata_policy_and_tags_are_changes_of_their_own(engine: Engine) -> None:
    """Changed metadata, policies and tags have a scope of their own, and replace no resource."""
    deploy(engine, body({"A": thing()}))
    changed = {"A": {**thing(), "Metadata": {"m": 1}, "DeletionPolicy": "Retain"}}
    change = by_resource(plan(engine, body(changed), Tags=[{"Key": "k", "Value": "v"}]))["A"]
    assert change["Scope"] == ["DeletionPolicy", "Metadata", "Tags"]
    assert change["Replacement"] == "False"


def test_output_alone_is_a_change(engine: Engine) -> None:
    """A change set with only a changed output can be executed."""
    deploy(engine, body({"A": thing()}))
    description = plan(engine, body({"A": thing()}, Outputs={"O": {"Value": "x"}}))
    assert (description["Status"], description["Changes"]) == ("CREATE_COMPLETE", [])


def test_execution_uses_up_a_change_set(engine: Engine) -> None:
    """A change set can be executed once, and then the stack's other change sets are deleted."""
    deploy(engine, body({"A": thing()}))
    plan(engine, body({"A": thing(Value="2")}))
    operations.create_change_set(
        engine, {"StackName": "s", "ChangeSetName": "other", "TemplateBody": body({"A": thing(Value="3")})}
    )
    request = {"StackName": "s", "ChangeSetName": "c"}
    operations.execute_change_set(engine, request)
    settled(get_stack(engine.context, "s"))
    with faulted("InvalidChangeSetStatus", 400):
        operations.execute_change_set(engine, request)
    with faulted("ChangeSetNotFound", 404):
        queries.describe_change_set(engine, {"StackName": "s", "ChangeSetName": "other"})
    assert operations.delete_change_set(engine, {"StackName": "s", "ChangeSetName": "other"}) == {}


def test_change_set_of_the_wrong_kind_is_refused(engine: Engine) -> None:
    """CREATE for an existing stack, UPDATE for a missing one, and a used name are rejected."""
    with faulted("ValidationError", 400, "Stack [s] does not exist"):
        operations.create_change_set(engine, {"StackName": "s", "ChangeSetName": "c", "TemplateBody": body(CHAIN)})
    deploy(engine, body(CHAIN))
    with faulted("AlreadyExistsException", 400):
        plan(engine, body(CHAIN), kind="CREATE")
    with faulted("AlreadyExistsException", 400, "ChangeSet c "):
        operations.create_change_set(engine, {"StackName": "s", "ChangeSetName": "c", "TemplateBody": body(CHAIN)})


def test_differences_go_as_deep_as_they_can() -> None:
    """Keys and lists of equal length are compared item by item, and other lists as a whole."""
    before = {"a": {"x": 1, "gone": 2}, "l": [1, {"k": 1}], "m": [1]}
    after = {"a": {"x": 1, "new": 3}, "l": [1, {"k": 2}], "m": [1, 2]}
    paths = [path for path, _, _ in differences(before, after, "/Properties")]
    assert paths == ["/Properties/a/gone", "/Properties/a/new", "/Properties/l/1/k", "/Properties/m"]
