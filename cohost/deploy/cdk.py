"""The `cdk` command of this project, run for one catalog, and the progress of a deploy.

`cdk deploy` runs in a subprocess; CloudFormation's events give the state of each resource.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from cohost.endpoint.load_failures import COMPONENT_LOGS, ENDPOINT_LOGS
from cohost.errors import LocalError, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mypy_boto3_cloudformation import CloudFormationClient

    from cohost.endpoint.load_failures import LogWatch


def find_cdk(path: str) -> str:
    """Return the `cdk` program of a search path, which runs on the Node.js on PATH.

    Raises:
        LocalError: there is no `cdk` or no `node`.
    """
    if shutil.which("node") is None:
        raise LocalError(
            "node-missing",
            "node",
            "is not on PATH",
            allowed="Node.js 20 or newer, which cdk runs on",
            fix="install it and run `make setup`",
        )
    if (found := shutil.which("cdk", path=path)) is None:
        raise LocalError(
            "cdk-missing",
            "cdk",
            f"is not in {path}",
            allowed="the cdk that package.json pins",
            fix="run `make setup`, and this command in the project's folder",
        )
    return os.path.realpath(found)


def cdk_command(*arguments: str, catalog: Path) -> list[str]:
    """Return the command line of `cdk` with the catalog as its context.

    Raises:
        LocalError: there is no `cdk` or no `node`.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path.cwd() / "node_modules" / ".bin")])
    return [find_cdk(path), *arguments, "--context", f"catalog={catalog}"]


POLL_S = 2.0
LOCAL_POLL_S = 0.2
"""The local AWS rolls back, and deletes the containers' logs, within a second."""

_SHOWN_LINES = 30
_WITH_CONTAINERS = {"AWS::SageMaker::Endpoint", "AWS::SageMaker::InferenceComponent"}
_NOT_HEALTHY = "did not pass the ping health check"


@dataclass(kw_only=True)
class Progress:
    """The state of a deploy: each resource's type and last status, in the order of their first event.

    `log_groups` are those of containers that the deploy has made.
    """

    started: datetime
    resources: dict[str, tuple[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    log_groups: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def take(self, events: Sequence[Any]) -> None:
        """Add events, oldest first; ignore those that were added before."""
        for event in events:
            if event["EventId"] in self._seen or event["Timestamp"] < self.started:
                continue
            self._seen.add(event["EventId"])
            status = event["ResourceStatus"]
            self.resources[event["LogicalResourceId"]] = (event["ResourceType"], status)
            if _is_of_containers(event["ResourceType"], event.get("PhysicalResourceId", "")):
                self.log_groups.add(event["PhysicalResourceId"])
            # CloudFormation cancels what was under way when another resource failed; a cancellation is not a cause.
            if status.endswith("_FAILED") and "cancelled" not in (reason := event.get("ResourceStatusReason", "")):
                self.failures.append(f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}")


def deploy(
    command: Sequence[str],
    stack: str,
    cloudformation: CloudFormationClient,
    log: Path,
    show: Callable[[Progress], None],
    *,
    watch: LogWatch | None = None,
    poll_s: float = POLL_S,
) -> None:
    """Run `cdk deploy`, write its output to `log`, and show the progress every `poll_s` seconds.

    Args:
        command: the command line.
        stack: the stack that it deploys.
        cloudformation: a client in the stack's region.
        log: the file for the command's output.
        show: called with the progress after each poll.
        watch: reads the logs of the containers meanwhile: a rollback deletes the log groups of a first deploy.
        poll_s: seconds between two polls.

    Raises:
        StackError: the deploy failed; the message names each resource that failed and why, or ends with cdk's output,
            and each model that a container did not load.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(started=datetime.now(UTC))
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as process,  # noqa: S603 - the cdk command of this project
    ):
        try:
            while process.poll() is None:
                time.sleep(poll_s)
                _look(cloudformation, stack, progress)
                _read_logs(watch, progress.log_groups, progress)
                show(progress)
        except KeyboardInterrupt:
            # cdk receives Ctrl-C too; CloudFormation continues the deploy.
            process.wait()
            raise
    _look(cloudformation, stack, progress)
    show(progress)
    if process.returncode:
        if watch is not None:
            _read_logs(watch, progress.log_groups | _log_groups(cloudformation, stack), progress)
        raise StackError(
            "deploy-failed",
            f"stack {stack}",
            f"cdk ended with {process.returncode}",
            fix=f"correct the faults in the lines below; the whole log is {log}" + _explain(progress, log, watch),
        )


def _look(cloudformation: CloudFormationClient, stack: str, progress: Progress) -> None:
    try:
        events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    except (ClientError, BotoCoreError):
        # The stack does not exist yet while cdk synthesizes or publishes assets; cdk outlasts an unreachable service.
        return
    progress.take(list(reversed(events)))


def _read_logs(watch: LogWatch | None, groups: Iterable[str], progress: Progress) -> None:
    """Read the logs of the containers, once there can be any."""
    if watch is not None and any(kind in _WITH_CONTAINERS for kind, _ in progress.resources.values()):
        watch.look(groups)


def _log_groups(cloudformation: CloudFormationClient, stack: str) -> set[str]:
    """Return the log groups of containers that an update does not change, because no event names them."""
    try:
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        found = [one for page in pages for one in page["StackResourceSummaries"]]
    except (ClientError, BotoCoreError):
        return set()
    groups = ((one["ResourceType"], one.get("PhysicalResourceId", "")) for one in found)
    return {group for kind, group in groups if _is_of_containers(kind, group)}


def _is_of_containers(kind: str, physical_id: str) -> bool:
    return kind == "AWS::Logs::LogGroup" and physical_id.startswith((ENDPOINT_LOGS, COMPONENT_LOGS))


def _explain(progress: Progress, log: Path, watch: LogWatch | None) -> str:
    """Return the lines below the error: the resources that failed, or the end of cdk's output, and the models."""
    output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    lines = progress.failures or output[-_SHOWN_LINES:]
    return "".join(f"\n{line}" for line in (*lines, *_container_failures(progress, watch)))


def _container_failures(progress: Progress, watch: LogWatch | None) -> list[str]:
    """Name the models that were not loaded; if a container failed and no log names one, return the log's end."""
    if watch is None:
        return []
    if failures := watch.reader.failures:
        return [failure.line() for failure in failures]
    if any(_NOT_HEALTHY in failure for failure in progress.failures):
        return [f"the container's log: {line}" for line in watch.reader.tail]
    return []
