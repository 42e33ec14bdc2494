"""Custom resources: the event, the answer, and all possible failures."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from local_aws.cloudformation.errors import ResourceFailure
from local_aws.cloudformation.resources.base import Request
from local_aws.cloudformation.resources.custom import CustomResource, Responses, stringified

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.kit.clients import Clients

TOKEN = "arn:aws:lambda:us-east-1:123456789012:function:f"


class Handler:
    """Stands for boto3's Lambda client; `act` is the function's code."""

    def __init__(self, responses: Responses, act: Callable[[Handler, dict[str, Any]], dict[str, Any] | None]) -> None:
        self.responses = responses
        self.act = act
        self.events: list[dict[str, Any]] = []

    def get(self, service: str, region: str) -> Handler:
        """The client itself; it is its own factory."""
        assert (service, region) == ("lambda", "us-east-1")
        return self

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """Run the function."""
        assert FunctionName == TOKEN
        event = json.loads(Payload)
        self.events.append(event)
        return self.act(self, event) or {}

    def answer(self, event: dict[str, Any], **fields: Any) -> None:
        """Put an answer into the inbox, as the PUT to the ResponseURL does."""
        echoed = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
        self.raw(event, json.dumps({"Status": "SUCCESS", "PhysicalResourceId": "id", **echoed, **fields}).encode())

    def raw(self, event: dict[str, Any], body: bytes) -> None:
        """Put any bytes into the inbox."""
        token = event["ResponseURL"].rsplit("/", 1)[1]
        assert self.responses.deliver(token, body)


def make(act: Callable[[Handler, dict[str, Any]], dict[str, Any] | None]) -> tuple[CustomResource, Handler]:
    """Return a custom resource and its function."""
    responses = Responses(lambda: "http://127.0.0.1:1")
    return CustomResource(responses), Handler(responses, act)


def request(handler: Handler, **fields: Any) -> Request:
    """A call for the resource R."""
    clients: Any = handler
    properties = {"ServiceToken": TOKEN, "Flag": True, "Count": 1, "Deep": {"list": [False, 2.5, "x"]}}
    known: dict[str, Any] = {
        "type": "Custom::Thing",
        "logical_id": "R",
        "stack_name": "s",
        "stack_arn": "arn:stack",
        "region": "us-east-1",
        "properties": properties,
        "tags": {},
        "clients": clients,
    }
    typed: Clients = clients
    assert typed is clients
    return Request(**{**known, **fields})


def test_request_has_cloudformations_form() -> None:
    """The event of a custom resource has all of CloudFormation's fields, with scalars as text."""
    resource, handler = make(lambda me, event: me.answer(event, Data={"Url": "u"}))
    outcome = resource.create(request(handler))
    assert (outcome.physical_id, outcome.attributes) == ("id", {"Url": "u"})
    event = handler.events[0]
    assert event["RequestType"] == "Create"
    assert event["ResourceType"] == "Custom::Thing"
    assert event["ResourceProperties"]["Deep"] == {"list": ["false", "2.5", "x"]}
    assert (event["ResourceProperties"]["Flag"], event["ResourceProperties"]["Count"]) == ("true", "1")
    assert "PhysicalResourceId" not in event
    assert event["ResponseURL"].startswith("http://127.0.0.1:1/_cohost/cfn-response/")


def test_update_and_delete_name_what_they_are_about() -> None:
    """Update and Delete events have the physical id, and Update also the old properties."""
    resource, handler = make(lambda me, event: me.answer(event, PhysicalResourceId="new"))
    old = {"ServiceToken": TOKEN, "Flag": False}
    assert resource.update(request(handler, physical_id="old", old_properties=old)).physical_id == "new"
    resource.delete(request(handler, physical_id="new"))
    assert handler.events[0]["OldResourceProperties"]["Flag"] == "false"
    assert [event.get("PhysicalResourceId") for event in handler.events] == ["old", "new"]


def test_failed_create_may_name_what_it_left() -> None:
    """The rollback deletes the id of a FAILED answer, or else the generated id."""
    resource, handler = make(
        lambda me, event: me.answer(event, Status="FAILED", Reason="quota", PhysicalResourceId="half")
    )
    seen: list[str] = []
    with pytest.raises(ResourceFailure, match=r"Received response status \[FAILED\].*quota"):
        resource.create(request(handler, initiated=seen.append))
    assert seen[0].startswith("s-R-")
    assert seen[1] == "half"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"Status": "DONE"}, "Status must be SUCCESS or FAILED"),
        ({"PhysicalResourceId": ""}, "Invalid PhysicalResourceId"),
        ({"PhysicalResourceId": "x" * 1025}, "Invalid PhysicalResourceId"),
        ({"RequestId": "another"}, "RequestId is 'another'"),
        ({"Data": {"x": "y" * 5000}}, "Response object is too long"),
    ],
)
def test_wrong_answer_fails_the_resource(fields: dict[str, Any], text: str) -> None:
    """A wrong answer of a custom resource fails the resource, and each fault is named."""
    resource, handler = make(lambda me, event: me.answer(event, **fields))
    with pytest.raises(ResourceFailure, match=text):
        resource.create(request(handler))


def test_answer_that_is_no_json_fails_the_resource() -> None:
    """An answer that is no JSON fails the resource, with its beginning in the reason."""
    resource, handler = make(lambda me, event: me.raw(event, b"<html>"))
    with pytest.raises(ResourceFailure, match="<html>"):
        resource.create(request(handler))


def test_function_that_dies_without_answer_fails_at_once() -> None:
    """A function that ends without an answer fails the resource at once, and not after an hour."""

    def crash(me: Handler, event: dict[str, Any]) -> dict[str, Any]:
        del me, event
        error = {"errorType": "ImportError", "errorMessage": "no module named x"}
        return {"FunctionError": "Unhandled", "Payload": io.BytesIO(json.dumps(error).encode())}

    resource, handler = make(crash)
    with pytest.raises(ResourceFailure, match="ImportError: no module named x"):
        resource.create(request(handler))
    silent, quiet = make(lambda me, event: None)  # noqa: ARG005 - a function's arguments
    with pytest.raises(ResourceFailure, match="ended without an answer"):
        silent.create(request(quiet))


def test_function_that_cannot_be_called_fails_at_once() -> None:
    """A wrong service token fails the resource at once."""

    def refuse(me: Handler, event: dict[str, Any]) -> None:
        raise RuntimeError(f"Function not found: {me} {event['ServiceToken']}")

    resource, handler = make(refuse)
    with pytest.raises(ResourceFailure, match="Function not found"):
        resource.create(request(handler))


def test_service_timeout_ends_the_wait() -> None:
    """A function that never ends fails the resource at its ServiceTimeout."""
    forever = threading.Event()
    resource, handler = make(lambda me, event: forever.wait(120) and None)  # noqa: ARG005 - a function's arguments
    properties = {"ServiceToken": TOKEN, "ServiceTimeout": "1"}
    with pytest.raises(ResourceFailure, match="ServiceTimeout"):
        resource.create(request(handler, properties=properties))
    forever.set()


def test_stringified_keeps_texts() -> None:
    """Numbers and booleans become text at any depth, and text stays."""
    assert stringified({"a": [True, 0, 1.5, "x", {"b": False}]}) == {"a": ["true", "0", "1.5", "x", {"b": "false"}]}
