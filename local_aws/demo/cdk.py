"""Runs of the real `cdk` command against the local AWS emulator."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.deploy.cdk import find_cdk
from cohost.endpoint.stack_outputs import DEFAULT_STACK
from cohost.errors import LocalError
from local_aws.kit.account import ACCOUNT_ID, DEFAULT_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STACK = DEFAULT_STACK
PROJECT = Path(__file__).resolve().parents[2]
_SHOWN_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Cdk:
    """The `cdk` command of the pinned version, with environment variables that direct it to a local AWS emulator.

    `out` is the folder for the cloud assembly and for `cdk.log`, the output of every command.
    """

    environment: Mapping[str, str]
    out: Path

    def run(self, *arguments: str, catalog: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one cdk command for a catalog until it ends; `stdout` of the result has both output streams.

        Raises:
            LocalError: cdk or node is missing, or the command failed and `check` is True; the message ends with the
                last lines of the command's output.
        """
        options = ["--context", f"catalog={catalog.resolve()}", "--output", str(self.out / "cdk.out")]
        return self._run([*arguments, *options], folder=PROJECT, check=check)

    def _run(self, arguments: Sequence[str], *, folder: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        self.out.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(  # noqa: S603 - the pinned cdk, no shell
            [find_cdk(str(PROJECT / "node_modules" / ".bin")), *arguments, "--ci"],
            cwd=folder,
            env={**_without_aws(os.environ), **self.environment, "PATH": _path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with (self.out / "cdk.log").open("a") as log:
            log.write(f"$ cdk {' '.join(arguments)}\n{done.stdout}\n")
        if check and done.returncode != 0:
            tail = "\n".join(done.stdout.strip().splitlines()[-_SHOWN_LINES:])
            raise LocalError(
                "cdk-command-failed",
                f"cdk {' '.join(arguments)}",
                f"ended with {done.returncode}",
                fix=f"see {self.out / 'cdk.log'}\n{tail}",
            )
        return done

    def bootstrap(self) -> None:
        """Prepare the emulator's account and region for deploys with `cdk bootstrap`."""
        # The command names account and region and runs in a folder without an app, so cdk needs no synth.
        environment = f"aws://{ACCOUNT_ID}/{self.environment.get('AWS_REGION', DEFAULT_REGION)}"
        self._run(["bootstrap", environment], folder=self.out)

    def deploy(self, catalog: Path) -> None:
        """Create or update the stack for a catalog, without a prompt for approval."""
        self.run("deploy", STACK, "--require-approval", "never", catalog=catalog)

    def diff(self, catalog: Path) -> str:
        """Return the changes that a deploy of the catalog would make, as cdk prints them."""
        return self.run("diff", STACK, catalog=catalog).stdout

    def destroy(self, *stacks: str) -> None:
        """Delete stacks of the last synth, by default the endpoint's stack, without a prompt for approval."""
        last = str(self.out / "cdk.out")
        self._run(["destroy", *(stacks or [STACK]), "--force", "--app", last], folder=self.out)


def _path() -> str:
    """Return a PATH on which `python3`, the command in cdk.json, is the interpreter of this process."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _without_aws(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that could lead cdk to a real account: profiles, tokens, endpoints."""
    return {
        name: value
        for name, value in environment.items()
        # CDK_VALIDATION names no account: it only turns CloudFormation's default rules on or off in a synth.
        if name == "CDK_VALIDATION" or not name.startswith(("AWS_", "CDK_"))
    }
