"""The command line of `cdk` for one catalog, and a run of `cdk deploy` with its progress.

`cdk deploy` runs in a subprocess; the status of each resource is read from CloudFormation's events.
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
    """Return the file path of the program `cdk` on a search path. `cdk` needs `node`, which must be on PATH.

    Raises:
        LocalError: the search path has no `cdk`, or PATH has no `node`.
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
    """Return the command line of `cdk`, which passes the catalog's path to the app as the context value `catalog`.

    Raises:
        LocalError: the program `cdk` or `node` is missing.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path.cwd() / "node_modules" / ".bin")])
    return [find_cdk(path), *arguments, "--context", f"catalog={catalog}"]


POLL_S = 2.0
LOCAL_POLL_S = 0.2
"""Seconds between polls of the local AWS emulator, which rolls back and deletes the containers' logs in a second."""

_SHOWN_LINES = 30
_WITH_CONTAINERS = {"AWS::SageMaker::Endpoint", "AWS::SageMaker::InferenceComponent"}
_NOT_HEALTHY = "did not pass the ping health check"


@dataclass(kw_only=True)
class Progress:
    """The state of a deploy, collected from CloudFormation's events since `started`.

    `resources` maps logical ids to type and last status, in the order of their first event; `failures` has one line per
    failed resource. `log_groups` are the log groups of containers that the deploy has created or changed.
    """

    started: datetime
    resources: dict[str, tuple[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    log_groups: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def take(self, events: Sequence[Any]) -> None:
        """Add CloudFormation's events, oldest first; ignore those that precede the deploy or were added before."""
        for event in events:
            if event["EventId"] in self._seen or event["Timestamp"] < self.started:
                continue
            self._seen.add(event["EventId"])
            status = event["ResourceStatus"]
            self.resources[event["LogicalResourceId"]] = (event["ResourceType"], status)
            if _is_of_containers(event["ResourceType"], event.get("PhysicalResourceId", "")):
                self.log_groups.add(event["PhysicalResourceId"])
            # When a resource fails, CloudFormation cancels the others that are under way; these are not the cause.
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
        command: the command line of `cdk deploy`.
        stack: the name of the stack that the command deploys.
        cloudformation: a client in the stack's region.
        log: the file for the output of `cdk`.
        show: the function that is called with the progress after each poll.
        watch: the reader of the containers' logs. It reads during the deploy, because a rollback of a stack's first
            deploy deletes the log groups. None reads no logs.
        poll_s: the seconds between two polls.

    Raises:
        StackError: the deploy failed. The message lists each failed resource with its reason, or else the last lines of
            cdk's output, and each model that a container did not load.
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
            # Ctrl-C reaches cdk too, which is in the same process group; CloudFormation continues the deploy.
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
        # The stack does not exist while cdk synthesizes or publishes assets. CloudFormation may also be unreachable for
        # a moment, which does not end cdk.
        return
    progress.take(list(reversed(events)))


def _read_logs(watch: LogWatch | None, groups: Iterable[str], progress: Progress) -> None:
    """Read the containers' logs once an event has named an endpoint or inference component, which run containers."""
    if watch is not None and any(kind in _WITH_CONTAINERS for kind, _ in progress.resources.values()):
        watch.look(groups)


def _log_groups(cloudformation: CloudFormationClient, stack: str) -> set[str]:
    """Return those log groups of containers that are resources of the stack.

    An update that leaves a log group unchanged has no event that names it, so `Progress.log_groups` lacks it.
    """
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
    """Return the lines to print below an error: failed resources, or else cdk's last output; then models not loaded."""
    output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    lines = progress.failures or output[-_SHOWN_LINES:]
    return "".join(f"\n{line}" for line in (*lines, *_container_failures(progress, watch)))


def _container_failures(progress: Progress, watch: LogWatch | None) -> list[str]:
    """Return one line per model that was not loaded.

    If the logs name no failed model, but a container failed its health check, return the last lines of its log.
    """
    if watch is None:
        return []
    if failures := watch.reader.failures:
        return [failure.line() for failure in failures]
    if any(_NOT_HEALTHY in failure for failure in progress.failures):
        return [f"the container's log: {line}" for line in watch.reader.tail]
    return []
