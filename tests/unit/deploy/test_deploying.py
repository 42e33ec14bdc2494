"""`cohost deploy`: the progress during cdk, and the errors."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from fakes.refusals import refused

from cohost.deploy import cdk as deploying
from cohost.endpoint.load_failures import LogWatch
from cohost.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

SOON = timedelta(minutes=1)


class Stacks:
    """A fake CloudFormation whose events exist from the start, but only once the stack exists."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = [{"EventId": str(number), **event} for number, event in enumerate(events)]
        self.dropped = 0
        self.go_on: Path | None = None

    def describe_stack_events(self, **_: object) -> dict[str, Any]:
        """Return the newest events first; after a lost connection cdk may continue to its end."""
        if self.dropped:
            self.dropped -= 1
            if self.go_on is not None:
                self.go_on.touch()
            raise EndpointConnectionError(endpoint_url="https://cloudformation.us-east-1.amazonaws.com/")
        if not self._events:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "no stack"}}, "DescribeStackEvents")
        return {"StackEvents": list(reversed(self._events))}


def event(name: str, status: str, reason: str | None = None, *, age: timedelta = -SOON) -> dict[str, Any]:
    """Return an event of a resource, which belongs to this deploy unless it is older."""
    text = {} if reason is None else {"ResourceStatusReason": reason}
    kind = "AWS::SageMaker::Endpoint"
    return {
        "LogicalResourceId": name,
        "ResourceType": kind,
        "ResourceStatus": status,
        "Timestamp": datetime.now(UTC) - age,
        **text,
    }


def run(stacks: Stacks, log: Path, code: str, watch: LogWatch | None = None) -> list[deploying.Progress]:
    """Deploy with another program instead of cdk, and return the printed progress."""
    shown: list[deploying.Progress] = []
    client: Any = stacks
    deploying.deploy([sys.executable, "-c", code], "s", client, log=log, show=shown.append, watch=watch, poll_s=0.01)
    return shown


def test_each_resource_is_shown_with_its_last_status(tmp_path: Path) -> None:
    """The progress shows each resource of this deploy with its last status, in the order of their starts."""
    stacks = Stacks(
        event("Old", "CREATE_COMPLETE", age=timedelta(hours=1)),
        event("Bucket", "CREATE_IN_PROGRESS"),
        event("Endpoint", "CREATE_IN_PROGRESS"),
        event("Bucket", "CREATE_COMPLETE"),
    )
    last = run(stacks, tmp_path / "logs" / "deploy.log", "print('published')")[-1]
    assert {name: status for name, (_, status) in last.resources.items()} == {
        "Bucket": "CREATE_COMPLETE",
        "Endpoint": "CREATE_IN_PROGRESS",
    }
    assert (tmp_path / "logs" / "deploy.log").read_text() == "published\n"


def test_a_failed_deploy_names_the_cause_and_not_what_it_cancelled(tmp_path: Path) -> None:
    """The error of a failed deploy names the failed resource, not those that CloudFormation cancelled."""
    stacks = Stacks(
        event("Endpoint", "CREATE_FAILED", "no machine to be had"),
        event("Alarm", "CREATE_FAILED", "Resource creation cancelled"),
    )
    with refused("deploy-failed", kind=StackError) as caught:
        run(stacks, tmp_path / "deploy.log", "raise SystemExit(3)")
    assert "Endpoint (AWS::SageMaker::Endpoint): no machine to be had" in str(caught.value)
    assert "Alarm" not in str(caught.value)


def test_a_connection_that_drops_does_not_end_the_look_at_a_deploy(tmp_path: Path) -> None:
    """After a lost connection the progress continues with the missed events."""
    stacks = Stacks(event("Bucket", "CREATE_COMPLETE"))
    stacks.dropped = 1
    stacks.go_on = tmp_path / "dropped"
    cdk = f"import os, time\nwhile not os.path.exists({str(stacks.go_on)!r}): time.sleep(0.01)"
    last = run(stacks, tmp_path / "deploy.log", cdk)[-1]
    assert last.resources["Bucket"][1] == "CREATE_COMPLETE"


def test_a_failure_before_cloudformation_ends_with_what_cdk_said(tmp_path: Path) -> None:
    """If cdk fails before the stack exists, the error has cdk's last lines."""
    with refused("deploy-failed") as caught:
        run(Stacks(), tmp_path / "deploy.log", "import sys; sys.exit('catalog.yaml:3: bad key')")
    assert "catalog.yaml:3: bad key" in str(caught.value)
    assert str(tmp_path / "deploy.log") in str(caught.value)


ENDPOINT_GROUP, COMPONENT_GROUP = "/aws/sagemaker/Endpoints/e", "/aws/sagemaker/InferenceComponents/e-models"
UNHEALTHY = "The container of inference component c did not pass the ping health check. Please check CloudWatch logs."


class Watched:
    """Fake logs by group, and a reader of them."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        client: Any = self
        self.watch = LogWatch(client, ["x-l"], 0)

    def filter_log_events(self, **asked: Any) -> dict[str, Any]:
        """Return all lines of a log group at once."""
        lines = self.lines.get(asked["logGroupName"], [])
        return {"events": [{"eventId": f"{number}", "message": line} for number, line in enumerate(lines)]}


def group(physical_id: str) -> dict[str, Any]:
    """Return the event of a created log group."""
    kind = {"ResourceType": "AWS::Logs::LogGroup", "PhysicalResourceId": physical_id}
    return {**event(physical_id, "CREATE_COMPLETE"), **kind}


class Keeping(Stacks):
    """A stack whose update changes no log group, so no event names one."""

    def get_paginator(self, _: str) -> Any:
        """Return a paginator with all resources on one page."""
        return self

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        """Return the one page of all resources."""
        kept = {"ResourceType": "AWS::Logs::LogGroup", "PhysicalResourceId": ENDPOINT_GROUP}
        other = {"ResourceType": "AWS::Logs::LogGroup", "PhysicalResourceId": "function"}
        return [{"StackResourceSummaries": [kept, other, {"ResourceType": "AWS::IAM::Role"}]}]


def test_a_failed_deploy_names_the_model_that_the_container_did_not_load(tmp_path: Path) -> None:
    """The error names the model that failed to load, read from the log before a rollback deletes it."""
    logs = Watched()
    logs.lines[COMPONENT_GROUP] = [
        "ai.djl.engine.EngineException: Failed to initialize model: org/x: labels do not fit",
        "ModelLoadingError.Count:1|#Model:x_l",
    ]
    stacks = Keeping(group(COMPONENT_GROUP), event("Component", "CREATE_FAILED", UNHEALTHY))
    gone = tmp_path / "gone"

    def shown(_: deploying.Progress) -> None:
        if logs.watch.reader.failures:
            logs.lines.clear()
            gone.touch()

    client: Any = stacks
    code = f"import os, time\nwhile not os.path.exists({str(gone)!r}): time.sleep(0.01)\nraise SystemExit(1)"
    command = [sys.executable, "-c", code]
    with pytest.raises(StackError) as caught:
        deploying.deploy(command, "s", client, tmp_path / "log", shown, watch=logs.watch, poll_s=0.01)
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        f"Component (AWS::SageMaker::Endpoint): {UNHEALTHY}",
        "model x-l was not loaded: EngineException: Failed to initialize model: org/x: labels do not fit",
    ]


def test_a_failed_update_reads_the_log_group_that_it_left_alone(tmp_path: Path) -> None:
    """After a failed update the error has the last log lines, if the health of a container was the cause."""
    logs = Watched()
    logs.lines[ENDPOINT_GROUP] = ["no engine", "good bye"]
    unhealthy = Keeping(event("Endpoint", "UPDATE_FAILED", UNHEALTHY))
    with pytest.raises(StackError) as caught:
        run(unhealthy, tmp_path / "deploy.log", "raise SystemExit(1)", logs.watch)
    assert str(caught.value).splitlines()[2:] == ["the container's log: no engine", "the container's log: good bye"]
    refused = Keeping(event("Endpoint", "UPDATE_FAILED", "no machine to be had"))
    with pytest.raises(StackError) as caught:
        run(refused, tmp_path / "deploy.log", "raise SystemExit(1)", logs.watch)
    assert "the container's log" not in str(caught.value)
