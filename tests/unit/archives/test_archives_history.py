"""Earlier generations stay after an update, and go with the stack: by CloudFormation's own sequences of events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cohost.archives.store import ModelStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from tests.unit.artifacts.conftest import CloudFormation, Spy

    Keys = Callable[[], set[str]]
    Send = Callable[[dict[str, Any]], dict[str, Any]]

pytestmark = pytest.mark.process


class Stack:
    """A stack with one model store, with the events that CloudFormation sends."""

    def __init__(self, send: Send, cloudformation: CloudFormation) -> None:
        self._send = send
        self._cloudformation = cloudformation
        self.live = ""
        self.properties: dict[str, Any] = {}

    def request(self, kind: str, properties: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Send one event and return its answer."""
        event = self._cloudformation.event(kind, **fields)
        event["ResourceProperties"] = {"ServiceToken": "arn", "Bucket": "models", "Prefix": "encoders/", **properties}
        return self._send(event)

    def create(self, properties: dict[str, Any]) -> str:
        """Make the resource."""
        answer = self.request("Create", properties)
        assert answer["Status"] == "SUCCESS", answer
        self.live, self.properties = answer["PhysicalResourceId"], properties
        return self.generation

    def change(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Send an Update event without the Delete that follows."""
        return self.request(
            "Update", properties, PhysicalResourceId=self.live, OldResourceProperties=dict(self.properties)
        )

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:
        """Send a deletion."""
        answer = self.request("Delete", properties, PhysicalResourceId=physical_id)
        assert answer["Status"] == "SUCCESS", answer

    def update(self, properties: dict[str, Any]) -> str:
        """Send the events of a successful update, with its clean-up."""
        answer = self.change(properties)
        assert answer["Status"] == "SUCCESS", answer
        old, before = self.live, self.properties
        self.live, self.properties = answer["PhysicalResourceId"], properties
        if old != self.live:
            self.delete(old, before)
        return self.generation

    def fail(self, properties: dict[str, Any]) -> None:
        """An update in which something else fails after the store: back, and then the clean-up."""
        good = self.properties
        answer = self.change(properties)
        assert answer["Status"] == "SUCCESS", answer
        failed, self.live, self.properties = self.live, answer["PhysicalResourceId"], properties
        back = self.change(good)
        assert back["PhysicalResourceId"] == failed
        new, self.live, self.properties = self.live, failed, good
        if new != self.live:
            self.delete(new, properties)

    def destroy(self) -> None:
        """Send the events of a deleted stack."""
        self.delete(self.live, self.properties)

    @property
    def generation(self) -> str:
        """Return the id of the live generation."""
        return self.live.rstrip("/").rpartition("/")[2]


def wanted(keep: int | None = 2, /, **words: str) -> dict[str, Any]:
    """Return properties of a model store whose models differ by one word."""
    models = {name: {"engine": "Python", "option.model_id": word} for name, word in words.items()}
    return {"Models": models, **({} if keep is None else {"KeepGenerations": str(keep)})}


@pytest.fixture
def stack(send: Send, cloudformation: CloudFormation) -> Stack:
    """Return a stack that is not created yet."""
    return Stack(send, cloudformation)


@pytest.fixture
def stored(keys: Keys) -> Callable[[], set[str]]:
    """The generations that have archives."""
    return lambda: {key.split("/")[1] for key in keys() if key.endswith(".tar.gz")}


@pytest.fixture
def store(s3: S3Client) -> ModelStore:
    """Return the model store as a command reads it."""
    return ModelStore(s3, "models", "encoders/")


def test_replaced_generations_stay_up_to_the_limit(stack: Stack, stored: Keys, store: ModelStore) -> None:
    """The last two replaced generations are kept and listed with their properties, and older ones are deleted."""
    first = stack.create(wanted(a="1", b="1"))
    second = stack.update(wanted(a="2", b="1"))
    third = stack.update(wanted(a="3", b="1"))
    assert stored() == {first, second, third}
    fourth = stack.update(wanted(a="4", b="1"))
    assert stored() == {second, third, fourth}
    earlier = store.history.earlier()
    assert [one.generation for one in earlier] == [third, second]
    assert earlier[0].properties == {"Models": wanted(a="3", b="1")["Models"]}
    assert earlier[0].left > earlier[1].left


def test_destroyed_stack_leaves_nothing(stack: Stack, keys: Keys, s3: S3Client) -> None:
    """A Delete of the live generation deletes all generations and records."""
    stack.create(wanted(a="1"))
    stack.update(wanted(a="2"))
    stack.update(wanted(a="3"))
    s3.put_object(Bucket="models", Key="encoders/rollback/left-behind.json", Body=b"{}")
    stack.destroy()
    assert keys() == set()


def test_failed_create_leaves_nothing(stack: Stack, keys: Keys) -> None:
    """The rollback of a failed create deletes all archives of the model store."""
    stack.create(wanted(a="1"))
    stack.destroy()
    assert keys() == set()


def test_update_that_failed_leaves_no_generation(stack: Stack, stored: Keys, store: ModelStore) -> None:
    """A generation that was published and rolled back is deleted because it never served; earlier ones stay."""
    first = stack.create(wanted(a="1"))
    second = stack.update(wanted(a="2"))
    stack.fail(wanted(a="bad"))
    assert stack.generation == second
    assert stored() == {first, second}
    assert [one.generation for one in store.history.earlier()] == [first]
    served = store.history.served()
    assert served is not None
    assert served.generation == second


def test_failed_update_to_a_kept_generation_keeps_it(stack: Stack, stored: Keys, store: ModelStore) -> None:
    """A failed update that returned to an earlier generation deletes no generation."""
    first = stack.create(wanted(a="1"))
    second = stack.update(wanted(a="2"))
    stack.fail(wanted(a="1"))
    assert stack.generation == second
    assert stored() == {first, second}
    assert [one.generation for one in store.history.earlier()] == [first]


def test_generation_that_returns_is_taken_up_and_leaves_again(stack: Stack, stored: Keys, spy: Spy) -> None:
    """A catalog that returns to earlier content uses the stored generation without an upload."""
    first = stack.create(wanted(a="1"))
    second = stack.update(wanted(a="2"))
    spy.calls["put_object"].clear()
    assert stack.update(wanted(a="1")) == first
    assert not [call for call in spy.calls["put_object"] if call["Key"].endswith(".tar.gz")]
    assert stack.update(wanted(a="2")) == second
    assert stored() == {first, second}


def test_kept_generation_is_not_mixed_with_other_models(stack: Stack, store: ModelStore) -> None:
    """A catalog with further models gets a new generation and leaves the earlier one unchanged."""
    first = stack.create(wanted(a="1", b="1"))
    stack.update(wanted(a="2", b="1"))
    other = stack.update(wanted(a="1", c="1"))
    assert other != first
    assert set(store.models(first)) == {"a", "b"}


def test_repeated_events_change_nothing(stack: Stack, stored: Keys, store: ModelStore) -> None:
    """A repeated update and clean-up have the effect of the first."""
    first = stack.create(wanted(a="1"))
    assert stack.create(wanted(a="1")) == first
    again = stack.change(wanted(a="2"))
    assert stack.change(wanted(a="2"))["PhysicalResourceId"] == again["PhysicalResourceId"]
    old = stack.live
    second = stack.update(wanted(a="2"))
    stack.delete(old, wanted(a="1"))
    assert stored() == {first, second}
    assert [one.generation for one in store.history.earlier()] == [first]


def test_interrupted_removal_of_all_goes_on_with_the_next_event(
    stack: Stack, spy: Spy, keys: Keys, cloudformation: CloudFormation
) -> None:
    """A repeated Delete continues a failed deletion, because the record is deleted last."""
    stack.create(wanted(a="1"))
    stack.update(wanted(a="2"))
    for number in (1, 2, 3):
        spy.fail("delete_objects", number)
        answer = stack.request("Delete", stack.properties, PhysicalResourceId=stack.live)
        assert answer["Status"] == "FAILED"
    stack.destroy()
    assert keys() == set()
    assert cloudformation.answers[-1]["Status"] == "SUCCESS"


@pytest.mark.parametrize("number", range(1, 6))
def test_update_that_s3_refuses_is_as_if_it_had_not_been(
    stack: Stack, spy: Spy, stored: Keys, store: ModelStore, keys: Keys, number: int
) -> None:
    """After any failed write only the live generation has archives and is recorded, and the stack can be deleted."""
    first = stack.create(wanted(a="1"))
    spy.fail("put_object", number)
    answer = stack.change(wanted(a="2"))
    assert answer["Status"] == "FAILED"
    # CloudFormation takes the failed resource back by another update.
    assert stack.change(stack.properties)["PhysicalResourceId"] == stack.live
    served = store.history.served()
    assert served is not None
    assert served.generation == first
    assert stored() == {first}
    stack.destroy()
    assert keys() == set()


def test_none_kept_is_as_it_was(stack: Stack, stored: Keys, keys: Keys) -> None:
    """If the property is missing, a replaced generation is deleted and nothing is recorded."""
    stack.create(wanted(None, a="1"))
    second = stack.update(wanted(None, a="2"))
    assert stored() == {second}
    assert all(key.endswith(".tar.gz") for key in keys())
    stack.destroy()
    assert keys() == set()


def test_store_that_begins_to_keep_keeps_what_it_served(stack: Stack, stored: Keys, store: ModelStore) -> None:
    """A stack that starts to keep generations keeps the one that its first update replaces."""
    first = stack.create(wanted(None, a="1"))
    second = stack.update(wanted(1, a="2"))
    assert stored() == {first, second}
    assert store.history.earlier()[0].properties == {"Models": wanted(a="1")["Models"]}


def test_store_that_no_longer_keeps_clears_up(stack: Stack, stored: Keys, keys: Keys) -> None:
    """A stack that stops keeping generations deletes all replaced ones at the next update."""
    stack.create(wanted(a="1"))
    stack.update(wanted(a="2"))
    third = stack.update(wanted(0, a="3"))
    assert stored() == {third}
    stack.destroy()
    assert keys() == set()


def test_bundles_stay_too(stack: Stack, stored: Keys) -> None:
    """A generation that is one archive of all models is kept like any other."""
    first = stack.create({**wanted(a="1"), "Layout": "bundle"})
    second = stack.update({**wanted(a="2"), "Layout": "bundle"})
    assert stored() == {first, second}
    assert stack.update({**wanted(a="1"), "Layout": "bundle", "Generation": first}) == first


def test_named_generation_is_served_as_it_is(stack: Stack, spy: Spy, store: ModelStore) -> None:
    """An update to a named generation packs and writes no archive."""
    first = stack.create(wanted(a="1", b="1"))
    second = stack.update(wanted(a="2", b="1"))
    spy.calls["put_object"].clear()
    back = {**wanted(a="1", b="1"), "Handlers": {"a": "batched@of-an-older-version"}, "Generation": first}
    assert stack.update(back) == first
    assert not [call for call in spy.calls["put_object"] if call["Key"].endswith(".tar.gz")]
    assert [one.generation for one in store.history.earlier()] == [second]
    assert stack.update(wanted(a="2", b="1")) == second
    note = store.history.earlier()[0]
    assert note.generation == first
    assert "Generation" not in note.properties


def test_named_generation_that_is_not_stored_is_refused(stack: Stack, stored: Keys) -> None:
    """A named generation without archives is rejected with the missing objects."""
    first = stack.create(wanted(a="1"))
    answer = stack.change({**wanted(a="1"), "Generation": "0123456789ab"})
    assert answer["Status"] == "FAILED"
    assert "0123456789ab is not stored with a" in answer["Reason"]
    assert stored() == {first}


def test_rollback_of_a_failed_update_finds_a_named_generation(stack: Stack, stored: Keys) -> None:
    """The rollback of a failed update returns to a generation that `cohost rollback` had named."""
    first = stack.create(wanted(a="1"))
    second = stack.update(wanted(a="2"))
    stack.update({**wanted(a="1"), "Generation": first})
    stack.fail(wanted(a="bad"))
    assert stack.generation == first
    assert stored() == {first, second}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"KeepGenerations": "many"}, "KeepGenerations: got 'many'; allowed: a number from 0 to 99"),
        ({"KeepGenerations": "-1"}, "KeepGenerations: got '-1'"),
        ({"Generation": "latest"}, "Generation: got 'latest'; allowed: an id of 12 hexadecimal digits"),
        ({"Generation": ["x"]}, "Generation: got ['x']"),
    ],
)
def test_values_that_mean_nothing_are_refused(stack: Stack, properties: dict[str, Any], text: str) -> None:
    """The fault of a wrong property names the property, its value and the allowed values."""
    answer = stack.request("Create", {**wanted(a="1"), **properties})
    assert answer["Status"] == "FAILED"
    assert text in answer["Reason"]


def test_another_resource_s_deletion_spares_what_this_one_serves(stack: Stack, stored: Keys) -> None:
    """The Delete of the old logical id spares the generation that the new logical id serves."""
    first = stack.create(wanted(a="1"))
    renamed = stack.request("Create", wanted(a="1"), LogicalResourceId="Renamed")
    assert renamed["PhysicalResourceId"] == stack.live
    stack.destroy()
    assert stored() == {first}


def test_note_that_somebody_broke_is_told(stack: Stack, s3: S3Client) -> None:
    """A damaged record stops the event with its key, and nothing is deleted."""
    stack.create(wanted(a="1"))
    s3.put_object(Bucket="models", Key="encoders/served.json", Body=json.dumps([1]).encode())
    answer = stack.request("Delete", stack.properties, PhysicalResourceId=stack.live)
    assert answer["Status"] == "FAILED"
    assert "encoders/served.json: is not a JSON object" in answer["Reason"]
