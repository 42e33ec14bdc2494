"""A deploy as it goes on: `cdk deploy` in a process of its own, and what CloudFormation says of each resource."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from cohost.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mypy_boto3_cloudformation import CloudFormationClient

POLL_S = 2.0
_SHOWN_LINES = 30


@dataclass(kw_only=True)
class Progress:
    """What is known of a deploy: each resource's type and last status, in the order of their first event."""

    started: datetime
    resources: dict[str, tuple[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def take(self, events: Sequence[Any]) -> None:
        """Add events, oldest first; those that were taken before count once."""
        for event in events:
            if event["EventId"] in self._seen or event["Timestamp"] < self.started:
                continue
            self._seen.add(event["EventId"])
            status = event["ResourceStatus"]
            self.resources[event["LogicalResourceId"]] = (event["ResourceType"], status)
            # CloudFormation cancels what was under way when something else failed; that is no cause.
            if status.endswith("_FAILED") and "cancelled" not in (reason := event.get("ResourceStatusReason", "")):
                self.failures.append(f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}")


def deploy(
    command: Sequence[str],
    stack: str,
    cloudformation: CloudFormationClient,
    log: Path,
    show: Callable[[Progress], None],
) -> None:
    """Run `cdk deploy`, writing what it prints to `log`, and show the progress every two seconds.

    Raises:
        StackError: the deploy failed; the message names each resource that failed and why, or ends with what cdk said.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(started=datetime.now(UTC))
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as process,  # noqa: S603 - the cdk command of this project
    ):
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                _look(cloudformation, stack, progress)
                show(progress)
        except KeyboardInterrupt:
            # cdk gets Ctrl-C too; CloudFormation goes on with what it was told.
            process.wait()
            raise
    _look(cloudformation, stack, progress)
    show(progress)
    if process.returncode:
        raise StackError(_explain(stack, progress, process.returncode, log))


def _look(cloudformation: CloudFormationClient, stack: str, progress: Progress) -> None:
    try:
        events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    except (ClientError, BotoCoreError):
        # Not there yet, while cdk is at its synth or at publishing assets; or not to be reached, which cdk outlasts.
        return
    progress.take(list(reversed(events)))


def _explain(stack: str, progress: Progress, code: int, log: Path) -> str:
    said = "\n".join(progress.failures) or "\n".join(
        log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_SHOWN_LINES:]
    )
    return f"deploying {stack} failed (cdk ended with {code}); fix: what stands below; the whole log is {log}\n{said}"
