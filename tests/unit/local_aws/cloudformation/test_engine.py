"""The life of stacks: creation, update, replacement, rollback, deletion, with faults at every step."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from cloud_fakes import World, body, history, settled, thing
from fakes.faults import faulted

from local_aws.cloudformation import operations, queries
from local_aws.cloudformation.errors import CloudFormationError, ResourceFailure, ValidationError
from local_aws.cloudformation.operations import get_stack
from local_aws.cloudformation.resources.custom import CustomResource, Responses

if TYPE_CHECKING:
    from local_aws.cloudformation.engine import Engine
    from local_aws.cloudformation.state import Stack

# A store whose id follows its content, a model that names it, and an endpoint that names the model: the shape of ours.
CHAIN = {
    "Store": {"Type": "Custom::Store", "Properties": {"Content": "1"}},
    "Model": thing(Key={"Fn::GetAtt": ["Store", "Url"]}),
    "Endpoint": thing(Value={"Ref": "Model"}),
}


def chain(content: str) -> dict[str, Any]:
    """The chain with other content."""
    return {**CHAIN, "Store": {"Type": "Custom::Store", "Properties": {"Content": content}}}


def create(engine: Engine, resources: dict[str, Any], **request: Any) -> Stack:
    """Create a stack, and return it when its creation has ended."""
    answer = operations.create_stack(engine, {"StackName": "s", "TemplateBody": body(resources), **request})
    return settled(get_stack(engine.context, answer["StackId"]))


def update(engine: Engine, resources: dict[str, Any], **request: Any) -> Stack:
    """Update the stack, and return it when its update has ended."""
    operations.update_stack(engine, {"StackName": "s", "TemplateBody": body(resources), **request})
    return settled(get_stack(engine.context, "s"))


def delete(engine: Engine, **request: Any) -> Stack:
    """Delete the stack, and return it when its deletion has ended."""
    stack = get_stack(engine.context, "s")
    operations.delete_stack(engine, {"StackName": "s", **request})
    return settled(stack)


def test_creation_follows_the_order_and_computes_outputs(engine: Engine, world: World) -> None:
    """Resources are created in the order of their references, and outputs are resolved afterwards."""
    outputs = {"Url": {"Value": {"Fn::GetAtt": ["Store", "Url"]}}, "Id": {"Value": {"Fn::Sub": "<${Endpoint}>"}}}
    stack = create(engine, {}, TemplateBody=body(CHAIN, Outputs=outputs), ClientRequestToken="token")
    assert stack.status == "CREATE_COMPLETE"
    assert world.calls == [("create", "Store"), ("create", "Model"), ("create", "Endpoint")]
    assert {o["OutputKey"]: o["OutputValue"] for o in stack.outputs} == {"Url": "s3://store-1/", "Id": "<Endpoint-2>"}
    assert {event.token for event in stack.events} == {"token"}
    assert history(stack)[0] == "CREATE_IN_PROGRESS s"
    assert history(stack)[-1] == "CREATE_COMPLETE s"


def test_no_two_events_share_a_time(engine: Engine) -> None:
    """Each event has its own millisecond, because the cdk CLI sorts by it."""
    stack = create(engine, CHAIN)
    times = [event.timestamp.isoformat(timespec="milliseconds") for event in stack.events]
    assert times == sorted(set(times))


@pytest.mark.parametrize("broken", ["Store", "Model", "Endpoint"])
def test_failed_creation_removes_everything(engine: Engine, world: World, broken: str) -> None:
    """If the creation of any resource fails, all resources are deleted, and the reason names the failed one."""
    world.faults["create", broken] = "no more room"
    stack = create(engine, CHAIN)
    assert stack.status == "ROLLBACK_COMPLETE"
    assert world.existing == {}
    assert stack.resources == {}
    announced = next(event for event in stack.events if event.status == "ROLLBACK_IN_PROGRESS")
    assert announced.reason == f"The following resource(s) failed to create: [{broken}]. Rollback requested by user."
    failed = next(event for event in stack.events if event.status == "CREATE_FAILED")
    assert (failed.logical_id, failed.reason) == (broken, "no more room")


def test_half_made_resource_is_removed_too(engine: Engine, world: World) -> None:
    """A resource that failed after its id was known is deleted in the rollback."""
    world.faults["create", "Model"] = "it never came up"
    world.half_done.add(("create", "Model"))
    assert create(engine, CHAIN).status == "ROLLBACK_COMPLETE"
    assert world.existing == {}


def test_failed_creation_may_be_kept_and_mended(engine: Engine, world: World) -> None:
    """With rollback disabled a failed create stays, and an update creates the missing resources."""
    world.faults["create", "Model"] = "not yet"
    world.half_done.add(("create", "Model"))
    assert create(engine, CHAIN, DisableRollback=True).status == "CREATE_FAILED"
    assert set(world.existing) == {"store-1", "Model-1"}
    world.faults.clear()
    world.half_done.clear()
    stack = update(engine, CHAIN)
    assert stack.status == "UPDATE_COMPLETE"
    assert set(world.existing) == {"store-1", "Model-2", "Endpoint-3"}


def test_failed_creation_may_delete_the_stack(engine: Engine, world: World) -> None:
    """With OnFailure DELETE a failed create deletes the stack."""
    world.faults["create", "Endpoint"] = "x"
    stack = create(engine, CHAIN, OnFailure="DELETE")
    assert stack.status == "DELETE_COMPLETE"
    assert world.existing == {}


def test_failed_rollback_says_so_and_can_be_deleted(engine: Engine, world: World) -> None:
    """A resource that cannot be rolled back is named, and a later deletion of the stack deletes it."""
    world.faults = {("create", "Endpoint"): "x", ("delete", "Model"): "in use"}
    stack = create(engine, CHAIN)
    assert stack.status == "ROLLBACK_FAILED"
    assert stack.reason == "The following resource(s) failed to delete: [Model]. "
    world.faults.clear()
    assert delete(engine).status == "DELETE_COMPLETE"
    assert world.existing == {}


def test_same_physical_id_leaves_dependants_alone(engine: Engine, world: World) -> None:
    """A custom resource that keeps its physical id does not update its dependants."""
    create(engine, CHAIN)
    world.calls.clear()
    more = {**CHAIN, "Store": {"Type": "Custom::Store", "Properties": {"Content": "1", "Also": "a model"}}}
    assert update(engine, more).status == "UPDATE_COMPLETE"
    assert world.calls == [("update", "Store")]


def test_new_physical_id_replaces_and_cleans_up_in_reverse(engine: Engine, world: World) -> None:
    """A new physical id updates dependants first, and then deletes old resources in reverse order."""
    create(engine, CHAIN)
    world.calls.clear()
    stack = update(engine, chain("2"))
    assert stack.status == "UPDATE_COMPLETE"
    assert world.calls == [
        ("update", "Store"), ("create", "Model"), ("update", "Endpoint"), ("delete", "Model"), ("delete", "Store"),
    ]  # fmt: skip
    assert set(world.existing) == {"store-2", "Model-3", "Endpoint-2"}
    cleanup = history(stack).index("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS s")
    assert history(stack)[cleanup + 1 :] == [
        "DELETE_IN_PROGRESS Model", "DELETE_COMPLETE Model", "DELETE_IN_PROGRESS Store", "DELETE_COMPLETE Store",
        "UPDATE_COMPLETE s",
    ]  # fmt: skip


@pytest.mark.parametrize("broken", [("update", "Store"), ("create", "Model"), ("update", "Endpoint")])
@pytest.mark.parametrize("half", [False, True])
def test_failed_update_returns_to_what_was(engine: Engine, world: World, broken: tuple[str, str], half: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """If any step of an update fails, the old resources exist unreplaced, and the new ones are deleted."""
    create(engine, CHAIN)
    before = {name: dict(properties) for name, properties in world.existing.items()}
    stack = get_stack(engine.context, "s")
    records = {name: one.physical_id for name, one in stack.resources.items()}
    world.faults[broken] = "broken"
    if half:
        world.half_done.add(broken)

    # An update that fails fails once: the take-back of the same resource must be able to succeed.
    original = world.check

    def fail_once(verb: str, request: Any) -> None:
        try:
            original(verb, request)
        finally:
            if (verb, request.logical_id) == broken:
                world.faults.clear()

    world.check = fail_once  # type: ignore[method-assign]
    update(engine, chain("2"))
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE"
    assert world.existing == before
    assert {name: one.physical_id for name, one in stack.resources.items()} == records
    assert stack.target is not None
    assert stack.target.template.body == body(CHAIN)
    world.calls.clear()
    assert update(engine, chain("3")).status == "UPDATE_COMPLETE"
    assert "store-3" in world.existing


def test_rollback_sends_the_custom_resource_back_before_its_dependants(engine: Engine, world: World) -> None:
    """A rollback updates the custom resource, then the endpoint, and deletes new resources last."""
    create(engine, {**CHAIN, "Last": thing(depends_on=["Endpoint"], Value="a")})
    world.calls.clear()
    world.faults["update", "Last"] = "no"
    stack = update(engine, {**chain("2"), "Last": thing(depends_on=["Endpoint"], Value="b")})
    assert stack.status == "UPDATE_ROLLBACK_FAILED"
    world.faults.clear()
    operations.continue_update_rollback(engine, {"StackName": "s"})
    assert settled(stack).status == "UPDATE_ROLLBACK_COMPLETE"
    first_back = world.calls.index(("update", "Last")) + 1
    assert world.calls[first_back : first_back + 2] == [("update", "Store"), ("update", "Endpoint")]
    assert world.calls[-2:] == [("delete", "Model"), ("delete", "Store")]
    assert set(world.existing) == {"store-1", "Model-1", "Endpoint-2", "Last-3"}


def test_deletion_after_a_failed_rollback_leaves_nothing(engine: Engine, world: World) -> None:
    """A deletion after a failed rollback deletes old, new, replaced and discarded resources."""
    create(engine, CHAIN)
    world.faults["update", "Endpoint"] = "no"
    assert update(engine, chain("2")).status == "UPDATE_ROLLBACK_FAILED"
    world.faults.clear()
    assert delete(engine).status == "DELETE_COMPLETE"
    assert world.existing == {}


def test_update_without_rollback_stays_and_can_be_rolled_back(engine: Engine, world: World) -> None:
    """With rollback disabled a failed update stays until RollbackStack."""
    create(engine, CHAIN)
    world.faults["update", "Endpoint"] = "no"
    stack = update(engine, chain("2"), DisableRollback=True)
    assert stack.status == "UPDATE_FAILED"
    assert "store-2" in world.existing
    world.faults.clear()
    operations.roll_back_stack(engine, {"StackName": "s"})
    assert settled(stack).status == "UPDATE_ROLLBACK_COMPLETE"
    assert set(world.existing) == {"store-1", "Model-1", "Endpoint-2"}


def test_failed_update_that_was_kept_is_set_right_by_the_old_template(engine: Engine, world: World) -> None:
    """After a kept failed update, the old template updates the resource that failed."""
    create(engine, {"A": thing(Value="1")})
    world.faults["update", "A"] = "no"
    assert update(engine, {"A": thing(Value="2")}, DisableRollback=True).status == "UPDATE_FAILED"
    world.faults.clear()
    world.calls.clear()
    assert update(engine, {"A": thing(Value="1")}).status == "UPDATE_COMPLETE"
    assert world.calls == [("update", "A")]
    assert world.old_properties["A"] == {"Value": "2"}


def test_removed_and_added_resources(engine: Engine, world: World) -> None:
    """A resource missing in the new template is deleted at the end of the update, an added one in the rollback."""
    create(engine, {"A": thing(), "B": thing(depends_on=["A"])})
    assert update(engine, {"A": thing()}).status == "UPDATE_COMPLETE"
    assert set(world.existing) == {"A-1"}
    world.faults["create", "D"] = "no"
    stack = update(engine, {"A": thing(), "C": thing(), "D": thing(depends_on=["C"])})
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE"
    assert set(world.existing) == {"A-1"}
    assert set(stack.resources) == {"A"}


def test_leftover_of_the_clean_up_does_not_fail_the_update(engine: Engine, world: World) -> None:
    """An update succeeds even if an old resource cannot be deleted, and an event names this resource."""
    create(engine, {"A": thing(Key="1")})
    world.faults["delete", "A"] = "in use"
    stack = update(engine, {"A": thing(Key="2")})
    assert stack.status == "UPDATE_COMPLETE"
    assert "DELETE_FAILED A" in history(stack)


def test_named_resource_cannot_be_replaced(engine: Engine, world: World) -> None:
    """Replacing a resource with a fixed name fails, because the old one still has the name."""
    create(engine, {"A": thing(Name="fixed", Key="1")})
    stack = update(engine, {"A": thing(Name="fixed", Key="2")})
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE"
    failed = next(event for event in stack.events if event.status == "UPDATE_FAILED")
    assert "Rename fixed and update the stack again" in str(failed.reason)
    assert world.existing == {"fixed": {"Name": "fixed", "Key": "1"}}


def test_taken_name_fails_the_creation(engine: Engine, world: World) -> None:
    """A physical name that exists fails the create, and the rollback does not delete that resource."""
    world.existing["taken"] = {"not": "ours"}
    assert create(engine, {"A": thing(Name="taken")}).status == "ROLLBACK_COMPLETE"
    assert world.existing == {"taken": {"not": "ours"}}


@pytest.mark.parametrize(("policy", "kept"), [("Delete", False), ("Retain", True), ("RetainExceptOnCreate", True)])
def test_deletion_policy(engine: Engine, world: World, policy: str, kept: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Deleting a stack keeps resources with the policy Retain."""
    create(engine, {"A": {**thing(), "DeletionPolicy": policy}})
    assert delete(engine).status == "DELETE_COMPLETE"
    assert bool(world.existing) is kept


@pytest.mark.parametrize(("policy", "kept"), [("Retain", True), ("RetainExceptOnCreate", False)])
def test_deletion_policy_in_a_failed_creation(engine: Engine, world: World, policy: str, kept: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A failed create deletes resources with RetainExceptOnCreate, and keeps those with Retain."""
    world.faults["create", "B"] = "no"
    create(engine, {"A": {**thing(), "DeletionPolicy": policy}, "B": thing(depends_on=["A"])})
    assert bool(world.existing) is kept


def test_update_replace_policy(engine: Engine, world: World) -> None:
    """A replaced resource with UpdateReplacePolicy Retain is kept."""
    create(engine, {"A": thing(Key="1")})
    update(engine, {"A": {**thing(Key="2"), "UpdateReplacePolicy": "Retain"}})
    assert set(world.existing) == {"A-2"}
    update(engine, {"A": {**thing(Key="3"), "UpdateReplacePolicy": "Retain"}})
    assert set(world.existing) == {"A-2", "A-3"}


def test_failed_deletion_can_be_tried_again(engine: Engine, world: World) -> None:
    """A failed deletion names the remaining resources; a second one deletes or, as requested, retains them."""
    create(engine, {"A": thing(), "B": thing(depends_on=["A"]), "C": thing()})
    world.faults["delete", "A"] = "The bucket you tried to delete is not empty"
    stack = delete(engine)
    assert stack.status == "DELETE_FAILED"
    assert stack.reason == "The following resource(s) failed to delete: [A]. "
    assert set(stack.resources) == {"A"}
    assert delete(engine, RetainResources=["A"]).status == "DELETE_COMPLETE"
    assert [name[:1] for name in world.existing] == ["A"]


def test_second_deletion_is_no_error(engine: Engine, world: World) -> None:
    """DeleteStack for a stack that is being deleted is accepted, as in AWS."""
    stack = create(engine, {"A": thing()})
    world.gates["A"] = threading.Event()
    operations.delete_stack(engine, {"StackName": "s"})
    assert operations.delete_stack(engine, {"StackName": "s"}) == {}
    world.gates["A"].set()
    assert settled(stack).status == "DELETE_COMPLETE"
    assert world.calls.count(("delete", "A")) == 1


def test_deletion_stops_a_creation(engine: Engine, world: World) -> None:
    """A stack can be deleted during its creation, and leaves no resource."""
    world.gates["A"] = threading.Event()
    operations.create_stack(engine, {"StackName": "s", "TemplateBody": body({"A": thing()})})
    stack = get_stack(engine.context, "s")
    threading.Timer(0.1, world.gates["A"].set).start()
    delete(engine)
    assert stack.status == "DELETE_COMPLETE"
    assert world.existing == {}


def test_condition_switches_a_resource(engine: Engine, world: World) -> None:
    """A resource is deleted or created when its condition changes."""
    template = body(
        {"A": thing(), "B": {**thing(), "Condition": "On"}},
        Parameters={"Switch": {"Type": "String"}},
        Conditions={"On": {"Fn::Equals": [{"Ref": "Switch"}, "on"]}},
    )

    def switch(value: str) -> dict[str, Any]:
        return {"TemplateBody": template, "Parameters": [{"ParameterKey": "Switch", "ParameterValue": value}]}

    create(engine, {}, **switch("off"))
    assert set(world.existing) == {"A-1"}
    update(engine, {}, **switch("on"))
    assert set(world.existing) == {"A-1", "B-2"}
    update(engine, {}, **switch("off"))
    assert set(world.existing) == {"A-1"}


OFF = {"Conditions": {"On": {"Fn::Equals": ["a", "b"]}}}


@pytest.mark.parametrize(
    ("resources", "outputs", "block"),
    [
        ({"A": thing(Value={"Ref": "B"})}, {}, "Resources"),
        ({"A": thing(Value={"Fn::GetAtt": ["B", "Arn"]})}, {}, "Resources"),
        ({"A": thing(Value={"Fn::Sub": "x-${B.Arn}"})}, {}, "Resources"),
        ({"A": thing(Value={"Fn::If": ["On", "x", {"Ref": "B"}]})}, {}, "Resources"),
        ({"A": thing()}, {"O": {"Value": {"Ref": "B"}}}, "Outputs"),
        ({"A": thing()}, {"O": {"Value": "x", "Export": {"Name": {"Ref": "B"}}}}, "Outputs"),
    ],
)
def test_a_reference_to_a_resource_that_is_left_out_is_refused(
    engine: Engine, world: World, resources: dict[str, Any], outputs: dict[str, Any], block: str
) -> None:
    """A condition that does not hold leaves a resource out; AWS refuses the template before it makes anything."""
    template = {**resources, "B": {**thing(), "Condition": "On"}}
    with faulted("ValidationError", 400, f"Unresolved resource dependencies [B] in the {block} block"):
        create(engine, {}, TemplateBody=body(template, Outputs=outputs, **OFF))
    assert world.calls == []
    create(engine, {"A": thing()})
    with faulted("ValidationError", 400, f"[B] in the {block} block"):
        update(engine, {}, TemplateBody=body(template, Outputs=outputs, **OFF))


def test_what_is_left_out_may_refer_to_what_is_left_out(engine: Engine, world: World) -> None:
    """Branches not taken, resources and outputs that are left out too, and DependsOn."""
    resources = {
        "A": thing(Value={"Fn::If": ["On", {"Ref": "B"}, "x"]}, depends_on=["B"]),
        "B": {**thing(), "Condition": "On"},
        "C": {**thing(Value={"Ref": "B"}), "Condition": "On"},
    }
    outputs = {"O": {"Value": {"Ref": "C"}, "Condition": "On"}}
    assert create(engine, {}, TemplateBody=body(resources, Outputs=outputs, **OFF)).status == "CREATE_COMPLETE"
    assert set(world.existing) == {"A-1"}


def test_another_type_under_the_same_id_is_refused(engine: Engine, world: World) -> None:
    """CloudFormation never replaces a resource by one of another type."""
    create(engine, CHAIN)
    world.calls.clear()
    with faulted("ValidationError", 400, "Update of resource type is not permitted"):
        update(engine, {**CHAIN, "Endpoint": {"Type": "Custom::Store", "Properties": {"Content": "2"}}})
    assert world.calls == []


def test_a_create_only_property_deep_inside_replaces(engine: Engine, world: World) -> None:
    """Only a change of that part of the property makes a new resource."""
    create(engine, {"A": thing(Value={"Fixed": "1", "Free": "1"})})
    update(engine, {"A": thing(Value={"Fixed": "1", "Free": "2"})})
    assert set(world.existing) == {"A-1"}
    update(engine, {"A": thing(Value={"Fixed": "2", "Free": "2"})})
    assert set(world.existing) == {"A-2"}


def test_a_property_for_life_fails_the_update_and_nothing_else(engine: Engine, world: World) -> None:
    """The resource is not called, in the rollback neither."""
    create(engine, {"A": thing(Shape="round")})
    world.calls.clear()
    stack = update(engine, {"A": thing(Shape="square")})
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE"
    assert "Shape is for life" in [event.reason for event in stack.events]
    assert world.calls == []


def test_a_custom_resource_keeps_its_function() -> None:
    """A changed ServiceToken would send the resource to a function that does not know it."""
    with pytest.raises(ResourceFailure, match="Modifying service token is not allowed"):
        CustomResource(Responses(str)).check_fixed({"ServiceToken": "a"}, {"ServiceToken": "b"})


def test_changed_stack_tags_reach_resources(engine: Engine, world: World) -> None:
    """A change of only the stack's tags updates resources with tags."""
    create(engine, {"A": thing()}, Tags=[{"Key": "k", "Value": "1"}])
    world.calls.clear()
    update(engine, {"A": thing()}, Tags=[{"Key": "k", "Value": "2"}])
    assert world.calls == [("update", "A")]


def test_update_without_changes_is_refused(engine: Engine) -> None:
    """An update without changes is rejected with the text that cdk compares."""
    create(engine, CHAIN)
    with faulted("ValidationError", 400, "No updates are to be performed.") as caught:
        update(engine, CHAIN)
    assert caught.value.message == "No updates are to be performed."
    outputs = {"New": {"Value": "x"}}
    assert update(engine, {}, TemplateBody=body(CHAIN, Outputs=outputs)).status == "UPDATE_COMPLETE"


def test_unresolvable_attribute_fails_its_resource(engine: Engine, world: World) -> None:
    """A missing attribute of a custom resource fails the resource that uses it."""
    resources = {**CHAIN, "Model": thing(Key={"Fn::GetAtt": ["Store", "Nope"]})}
    stack = create(engine, resources)
    assert stack.status == "ROLLBACK_COMPLETE"
    failed = next(event for event in stack.events if event.status == "CREATE_FAILED")
    assert failed.logical_id == "Model"
    assert "Nope" in str(failed.reason)
    assert world.existing == {}


def test_unknown_type_and_property_are_refused_before_anything_is_made(engine: Engine, world: World) -> None:
    """An unknown resource type or property is rejected with the known ones before a resource is created."""
    with faulted("ValidationError", 400, "Unrecognized resource types: [AWS::EC2::Instance]"):
        create(engine, {"A": thing(), "B": {"Type": "AWS::EC2::Instance"}})
    with faulted("ValidationError", 400, "[Vlaue]"):
        create(engine, {"A": thing(Vlaue="x")})
    with faulted("ValidationError", 400, "[Nobody] in the Outputs"):
        create(engine, {}, TemplateBody=body(CHAIN, Outputs={"O": {"Value": {"Ref": "Nobody"}}}))
    assert world.calls == []
    assert engine.context.stacks == []


def test_rule_of_the_template_is_asserted(engine: Engine) -> None:
    """The CDK's rule for the bootstrap version is evaluated, and a violation has its reason."""
    assertion = {
        "Assert": {"Fn::Not": [{"Fn::Contains": [["1", "2"], {"Ref": "V"}]}]},
        "AssertDescription": "Please run 'cdk bootstrap'",
    }
    template = body({"A": thing()}, Parameters={"V": {"Type": "String"}}, Rules={"Check": {"Assertions": [assertion]}})
    with faulted("ValidationError", 400, "Please run 'cdk bootstrap'"):
        create(engine, {}, TemplateBody=template, Parameters=[{"ParameterKey": "V", "ParameterValue": "2"}])
    stack = create(engine, {}, TemplateBody=template, Parameters=[{"ParameterKey": "V", "ParameterValue": "30"}])
    assert stack.status == "CREATE_COMPLETE"


def test_exports_are_unique_and_protected(engine: Engine) -> None:
    """An export belongs to one stack, and cannot be changed or deleted while another stack imports it."""
    outputs = {"O": {"Value": {"Ref": "A"}, "Export": {"Name": "shared"}}}
    create(engine, {}, TemplateBody=body({"A": thing(Key="1")}, Outputs=outputs))
    user = {"StackName": "user", "TemplateBody": body({"B": thing(Value={"Fn::ImportValue": "shared"})})}
    operations.create_stack(engine, user)
    assert settled(get_stack(engine.context, "user")).status == "CREATE_COMPLETE"
    assert queries.list_imports(engine, {"ExportName": "shared"}) == {"Imports": ["user"]}
    operations.create_stack(engine, {"StackName": "twin", "TemplateBody": body({"A": thing()}, Outputs=outputs)})
    assert settled(get_stack(engine.context, "twin")).status == "ROLLBACK_COMPLETE"
    stack = update(engine, {}, TemplateBody=body({"A": thing(Key="2")}, Outputs=outputs))
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE"
    with faulted("ValidationError", 400, "shared cannot be deleted as it is in use by user"):
        delete(engine)


def test_wrong_state_and_wrong_name_are_refused(engine: Engine, world: World) -> None:
    """Each rejection has the code that SDKs turn into a typed error."""
    with faulted("ValidationError", 400, "Stack with id s does not exist"):
        queries.describe_stacks(engine, {"StackName": "s"})
    with faulted("ValidationError", 400, "stackName"):
        create(engine, CHAIN, StackName="1 bad name")
    world.faults["create", "Model"] = "no"
    create(engine, CHAIN)
    with faulted("AlreadyExistsException", 400):
        create(engine, CHAIN)
    with faulted("ValidationError", 400, "is in ROLLBACK_COMPLETE state and can not be updated"):
        update(engine, chain("2"))
    assert operations.delete_stack(engine, {"StackName": "never-there"}) == {}


def test_termination_protection(engine: Engine) -> None:
    """A protected stack cannot be deleted until the protection is removed."""
    create(engine, CHAIN, EnableTerminationProtection=True)
    with faulted("ValidationError", 400, "TerminationProtection"):
        delete(engine)
    operations.update_termination_protection(engine, {"StackName": "s", "EnableTerminationProtection": False})
    assert delete(engine).status == "DELETE_COMPLETE"


def test_deleted_stack_is_found_by_its_id_only(engine: Engine) -> None:
    """A deleted stack is found by its id, and its name can be used again."""
    arn = create(engine, CHAIN).arn
    delete(engine)
    assert queries.describe_stacks(engine, {"StackName": arn})["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE"
    with pytest.raises(ValidationError):
        queries.describe_stacks(engine, {"StackName": "s"})
    assert create(engine, CHAIN).arn != arn


def test_event_pages_run_from_new_to_old(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of events are complete and without repeats, the newest first."""
    monkeypatch.setattr("local_aws.cloudformation.queries.EVENTS_PER_PAGE", 3)
    stack = create(engine, CHAIN)
    expected = [event.event_id for event in reversed(stack.events)]
    seen, token = [], None
    while True:
        page = queries.describe_stack_events(engine, {"StackName": "s", "NextToken": token})
        seen += [event["EventId"] for event in page["StackEvents"]]
        stack.set_status("CREATE_COMPLETE")
        token = page["NextToken"]
        if token is None:
            break
    assert seen == expected


def test_iam_resources_need_their_capability() -> None:
    """IAM resources need CAPABILITY_IAM, and named ones CAPABILITY_NAMED_IAM, which includes it."""
    from local_aws.cloudformation.checks import check_capabilities
    from local_aws.cloudformation.templates.template import parse_template

    plain = parse_template(body({"R": {"Type": "AWS::IAM::Role"}}))
    named = parse_template(body({"R": {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "x"}}}))
    check_capabilities(plain, ["CAPABILITY_NAMED_IAM"])
    check_capabilities(named, ["CAPABILITY_NAMED_IAM"])
    for template, given in ((plain, []), (named, ["CAPABILITY_IAM"])):
        with pytest.raises(CloudFormationError) as caught:
            check_capabilities(template, given)
        assert caught.value.code == "InsufficientCapabilitiesException"
