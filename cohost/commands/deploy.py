"""The subcommands for a deploy and for the checks before it: `cohost deploy` and `cohost preflight`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import boto3
import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cohost.catalog.models import Catalog
from cohost.commands import console
from cohost.commands.options import DEFAULT_CATALOG, CatalogOption, JsonOption, StackOption, load_with_warnings
from cohost.deploy.cdk import LOCAL_POLL_S, POLL_S, Progress, cdk_command
from cohost.deploy.cdk import deploy as run_deploy
from cohost.deploy.local_aws import is_local
from cohost.deploy.preflight import Finding, run_checks
from cohost.endpoint.load_failures import LogWatch
from cohost.endpoint.stack_outputs import DEFAULT_REGION, DEFAULT_STACK
from cohost.forecast.pricing.price_list import load_prices

_LOG = Path(".cohost") / "deploy.log"
_MARKS = {"pass": ("pass", "green"), "fail": ("FAIL", "bold red"), "unknown": ("could not be checked", "yellow")}

SkipOption = Annotated[
    list[str] | None,
    typer.Option("--skip", help="A check, such as quota, whose failure does not stop the deploy; may be repeated."),
]


def preflight(catalog: CatalogOption = DEFAULT_CATALOG, as_json: JsonOption = False) -> None:
    """Check the requirements of a deploy: account, bootstrap, quota, instance type, image, models, price.

    Prints for each check if it passed, failed or could not run, and why. Ends with exit code 1 if a check failed.

    Example: cohost preflight --catalog model_configs/encoders.yaml
    """
    findings = _check(load_with_warnings(catalog).catalog, shown=not as_json)
    if as_json:
        console.print_json([asdict(one) for one in findings])
    if any(one.outcome == "fail" for one in findings):
        raise typer.Exit(console.EXIT_FAULT)


def deploy(
    catalog: CatalogOption = DEFAULT_CATALOG,
    stack: StackOption = DEFAULT_STACK,
    skip: SkipOption = None,
) -> None:
    """Run the checks of `cohost preflight`, then `cdk deploy`, and show the progress of each resource.

    Does not ask before IAM changes: review them with `cdk diff`. After a failed deploy the command prints the cause.

    Example: cohost deploy --catalog model_configs/encoders.yaml --skip quota
    """
    loaded = load_with_warnings(catalog).catalog
    findings = _check(loaded, shown=True)
    if any(one.outcome == "fail" and one.check not in (skip or ()) for one in findings):
        raise typer.Exit(console.EXIT_FAULT)
    command = cdk_command("deploy", stack, "--require-approval", "never", "--ci", catalog=catalog)
    cloudformation = boto3.client("cloudformation", region_name=_region())
    watch = LogWatch(boto3.client("logs", region_name=_region()), loaded.models, int(time.time() * 1000))
    with Live(Text("cdk is at its synth and at publishing assets"), console=console.err) as live:
        run_deploy(
            command,
            stack,
            cloudformation,
            log=_LOG,
            show=lambda progress: live.update(progress_table(progress)),
            watch=watch,
            poll_s=LOCAL_POLL_S if is_local(cloudformation.meta.endpoint_url) else POLL_S,
        )
    console.out.print(Text(f"{stack} is deployed; the log is {_LOG}"), soft_wrap=True)


def _region() -> str:
    return boto3.Session().region_name or DEFAULT_REGION


def _check(catalog: Catalog, *, shown: bool) -> list[Finding]:
    findings = []
    with console.err.status("Checking"):
        for finding in run_checks(boto3.Session(), _region(), catalog, load_prices()):
            findings.append(finding)
            if shown:
                console.out.print(
                    Text.assemble(_MARKS[finding.outcome], f"  {finding.check}: {finding.why}"), soft_wrap=True
                )
    return findings


def progress_table(progress: Progress) -> Table:
    """Return a table of the resources of a deploy, each with its type and last status."""
    table = Table("resource", "type", "status")
    for name, (kind, status) in progress.resources.items():
        style = "red" if "FAILED" in status or "ROLLBACK" in status else "green" if status.endswith("COMPLETE") else ""
        table.add_row(name, kind, Text(status, style=style))
    return table
