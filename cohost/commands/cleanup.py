"""The subcommands that remove or list resources that cost money: `cohost cleanup` and `cohost orphans`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import boto3
import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import JsonOption, StackOption
from cohost.deploy.cleanup.leftovers import find_endpoints
from cohost.deploy.cleanup.resource_types import Polling
from cohost.deploy.cleanup.work import Inventory, clean_up, take_inventory
from cohost.endpoint.stack_outputs import DEFAULT_REGION, DEFAULT_STACK
from cohost.errors import CleanupError
from cohost.forecast.pricing.price_list import load_prices, money

if TYPE_CHECKING:
    from cohost.deploy.cleanup.leftovers import Leftover, RunningEndpoint


def cleanup(
    stack: StackOption = DEFAULT_STACK,
    everything: Annotated[
        bool, typer.Option("--all", help="All stacks of this project, and the buckets that they keep.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the resources, but remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not prompt for confirmation.")] = False,
    poll: Annotated[
        float,
        typer.Option(
            "--poll",
            min=0.1,
            help="Seconds between two looks at a resource that is changing.",
        ),
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Remove a stack and the resources that it left, and check that no billed resource remains.

    The command waits for resources that are being created or updated, continues where an earlier run ended, and ends
    with exit code 1 if a resource that should be removed still exists.

    Example: cohost cleanup --dry-run
    """
    session = boto3.Session()
    name = None if everything else stack
    before = take_inventory(session, name)
    nothing = not (before.stacks or before.left(everything=everything))
    if as_json and (dry_run or nothing):
        console.print_json({"removed": [], "faults": [], "left": _data(before)})
    elif not as_json:
        _show("There is", before)
    if dry_run or nothing:
        return
    _confirm(before, yes=yes, everything=everything)
    with console.err.status("Removing") as status:
        outcome = clean_up(session, name, Polling(poll_s=poll, tell=status.update), everything=everything)
    for fault in outcome.faults:
        console.print_fault(fault)
    if as_json:
        console.print_json({"removed": outcome.removed, "faults": outcome.faults, "left": _data(outcome.after)})
    else:
        console.out.print(Text("\n".join(f"removed {one}" for one in outcome.removed)), soft_wrap=True)
        _show("Still there", outcome.after)
    if outcome.faults or outcome.after.stacks or outcome.after.left(everything=everything):
        raise typer.Exit(console.EXIT_FAULT)


def orphans(
    region: Annotated[
        list[str] | None,
        typer.Option("--region", help="A region to search; may be repeated (default: your region)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List every SageMaker endpoint of the account, with its price per month and its calls of the last week.

    Example: cohost orphans --region us-east-1 --region eu-central-1
    """
    session = boto3.Session()
    prices = load_prices()
    regions = region or [session.region_name or DEFAULT_REGION]
    found = {name: list(find_endpoints(session, name, prices)) for name in regions}
    if as_json:
        console.print_json({name: [asdict(one) for one in endpoints] for name, endpoints in found.items()})
        return
    for name, endpoints in found.items():
        columns = ("endpoint", "status", "since", "stack", "instances", "calls in 7 days", "USD/month")
        console.print_table(f"{len(endpoints)} endpoints in {name}", columns, map(_row, endpoints))


def _confirm(before: Inventory, *, yes: bool, everything: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CleanupError(
            "confirmation-missing",
            "cleanup",
            "would remove the resources above",
            allowed="a terminal",
            fix="add --yes",
        )
    count = len(before.stacks) + len(before.left(everything=everything))
    typer.confirm(f"Remove these {count}?", abort=True, err=True)


def _show(title: str, inventory: Inventory) -> None:
    if not (inventory.stacks or inventory.resources):
        console.out.print(Text(f"{title}: nothing of ours, so nothing of ours bills."))
        return
    rows = [*(("stack", one.name, one.status, None) for one in inventory.stacks), *map(_resource, inventory.resources)]
    console.print_table(title, ("type", "name", "stack or status", "bills"), rows)


def _resource(one: Leftover) -> tuple[str | None, ...]:
    return one.type, one.name, f"{one.stack}, kept on purpose" if one.kept else one.stack, one.bills


def _data(inventory: Inventory) -> dict[str, object]:
    return {
        "stacks": [asdict(one) for one in inventory.stacks],
        "resources": [{**asdict(one), "bills": one.bills} for one in inventory.resources],
    }


def _row(one: RunningEndpoint) -> tuple[object, ...]:
    instances = ", ".join(f"{count} x {instance_type}" for instance_type, count in one.instances.items())
    return one.name, one.status, one.created, one.stack, instances, one.calls, money(one.usd_per_month)
