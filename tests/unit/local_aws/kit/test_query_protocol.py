"""The query protocol: forms in, XML out."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from fakes.faults import faulted

from local_aws.kit.query_protocol import QueryError, QueryProtocol

PROTOCOL = QueryProtocol("cloudformation", title="CloudFormation")


def form(**values: str) -> bytes:
    """A form body; dots are written as two underscores."""
    return urlencode({key.replace("__", "."): value for key, value in values.items()}).encode()


def test_nested_lists_and_scalars_get_their_types() -> None:
    """Lists keep their order over nine members, and booleans are parsed."""
    members = {f"Parameters__member__{n}__ParameterKey": f"P{n}" for n in range(1, 12)}
    action, request = PROTOCOL.parse_request(
        form(Action="CreateStack", StackName="s", DisableRollback="true", TimeoutInMinutes="3", **members)
    )
    assert action == "CreateStack"
    assert request["DisableRollback"] is True
    assert request["TimeoutInMinutes"] == 3
    assert [entry["ParameterKey"] for entry in request["Parameters"]] == [f"P{n}" for n in range(1, 12)]


def test_empty_list_and_unknown_key() -> None:
    """SDKs write an empty list as an empty key; keys of newer SDKs are passed over."""
    _, request = PROTOCOL.parse_request(form(Action="CreateStack", StackName="s", Tags="", FromTheFuture__Mode="X"))
    assert request == {"StackName": "s", "Tags": []}


@pytest.mark.parametrize(
    ("body", "code", "about"),
    [
        (form(Action="MakeCoffee"), "InvalidAction", "MakeCoffee"),
        (b"", "InvalidAction", "operation"),
        (form(Action="CreateStack", StackName="s", DisableRollback="maybe"), "ValidationError", "DisableRollback"),
        (form(Action="DescribeStackResource", StackName="s"), "ValidationError", "LogicalResourceId"),
    ],
)
def test_bad_request_names_the_field(body: bytes, code: str, about: str) -> None:
    """An unknown action, a wrong type and a missing value are rejected with their names."""
    with faulted(code, 400, about):
        PROTOCOL.parse_request(body)


def test_answer_follows_the_output_shape() -> None:
    """Lists, times, booleans and special characters are written as SDKs read them."""
    stack = {
        "StackName": "a<b",
        "CreationTime": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
        "StackStatus": "CREATE_COMPLETE",
        "DisableRollback": False,
        "StackStatusReason": "colour \x1b[31mred",
        "Outputs": [],
    }
    xml = PROTOCOL.render_response("DescribeStacks", {"Stacks": [stack], "NextToken": None}).decode()
    assert "<DescribeStacksResult><Stacks><member>" in xml
    assert "<StackName>a&lt;b</StackName>" in xml
    assert "<CreationTime>2026-01-02T03:04:05.006Z</CreationTime>" in xml
    assert "<DisableRollback>false</DisableRollback>" in xml
    assert "colour ?[31mred" in xml
    assert "NextToken" not in xml


def test_answer_with_an_unknown_member_is_a_fault_of_ours() -> None:
    """An answer with an unknown member raises an error instead of losing it."""
    with pytest.raises(KeyError, match="Stakcs"):
        PROTOCOL.render_response("DescribeStacks", {"Stakcs": []})


def test_error_has_code_and_message() -> None:
    """An error has the code from which SDKs make typed errors."""
    xml = PROTOCOL.render_error(QueryError("ChangeSetNotFound", "ChangeSet [x] does not exist", status=404)).decode()
    assert "<Code>ChangeSetNotFound</Code><Message>ChangeSet [x] does not exist</Message>" in xml


def test_each_service_has_its_own_namespace_and_operations() -> None:
    """The service description alone decides; an action of another service is unknown."""
    protocol = QueryProtocol("cloudwatch", title="CloudWatch")
    assert b'xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"' in protocol.render_response("PutMetricData", {})
    assert b'xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"' in PROTOCOL.render_error(QueryError("A", "b"))
    with faulted("InvalidAction", 400, "CreateStack"):
        protocol.parse_request(form(Action="CreateStack", StackName="s"))
