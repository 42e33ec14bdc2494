"""The subcommands that wake an endpoint, put it to sleep or move its expiry: `cohost wake`, `sleep` and `expire`."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import boto3
import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import JsonOption, StackOption, TimeoutOption
from cohost.deploy.expiry import DELETE_ENDPOINT, move, read_lifetime, read_when, restore
from cohost.endpoint.client import CohostClient
from cohost.endpoint.copies import WAKE_TIMEOUT_S
from cohost.endpoint.stack_outputs import DEFAULT_STACK, read_deployment
from cohost.endpoint.working_hours import Patience, put_to_sleep, wait_until_awake, wake_up
from cohost.forecast.pricing.price_list import load_prices

if TYPE_CHECKING:
    from cohost.deploy.expiry import Lifetime
    from cohost.endpoint.stack_outputs import Deployment
    from cohost.endpoint.working_hours import Change


def wake(
    copies: Annotated[
        int | None,
        typer.Option(
            "--copies",
            min=1,
            help="Keep this number of copies until `cohost sleep` (default: start one, keep none).",
        ),
    ] = None,
    timeout: TimeoutOption = WAKE_TIMEOUT_S,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Wake a scale-to-zero endpoint: request copies of its inference component, and wait until a model answers.

    Example: cohost wake --copies 2
    """
    session = boto3.Session()
    deployment = read_deployment(session.client("cloudformation"), stack)
    client = CohostClient.from_deployment(deployment, session)
    waking = f"Waking {deployment.endpoint_name}"
    with console.waiting(waking, waking) as notice:
        patience = Patience(limit_s=timeout, notice=notice)
        started = patience.clock.now()
        change = wake_up(deployment, session, patience, copies=copies)
        found = wait_until_awake(deployment, session, patience.left(started), client)
    if as_json:
        console.print_json({**asdict(change), "running": found.current})
        return
    console.out.print(Text(f"{deployment.endpoint_name} is awake: {found.current} of {found.desired} copies run."))
    for line in _after_waking(change):
        console.out.print(Text(line), soft_wrap=True)


def sleep(
    until_wake: Annotated[
        bool,
        typer.Option("--until-wake", help="Let only `cohost wake` end the sleep, neither a call nor the schedule."),
    ] = False,
    timeout: TimeoutOption = WAKE_TIMEOUT_S,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Put a scale-to-zero endpoint to sleep: set its copies to zero, which ends its instances some minutes later.

    Example: cohost sleep --until-wake
    """
    session = boto3.Session()
    deployment = read_deployment(session.client("cloudformation"), stack)
    with console.waiting("Requesting no copies", "Waiting for a change under way") as notice:
        change = put_to_sleep(deployment, session, Patience(limit_s=timeout, notice=notice), until_wake=until_wake)
    if as_json:
        console.print_json(asdict(change))
        return
    console.out.print(Text(f"{deployment.endpoint_name} goes to sleep: copies {change.copies_before} to 0."))
    for line in (*_after_falling_asleep(change), _bill(change, deployment)):
        console.out.print(Text(line), soft_wrap=True)


def _after_waking(change: Change) -> list[str]:
    bounds = change.bounds
    if bounds is None:
        return ["Nothing scales it: the copies stay until `cohost sleep`."]
    if bounds.minimum:
        return [f"At least {bounds.minimum} stay until `cohost sleep`."]
    return ["It scales in to zero without calls; `cohost wake --copies 1` would keep a copy."]


def _after_falling_asleep(change: Change) -> list[str]:
    before, after = change.bounds_before, change.bounds
    if before is None or after is None:
        return ["Nothing scales it: only `cohost wake` or a deploy wakes it, no call does."]
    lines = []
    if before.minimum:
        lines.append(
            f"Auto scaling kept at least {before.minimum}, and would have brought that back at once: its minimum is 0 "
            "until `cohost wake`, or until the schedule or a deploy changes it."
        )
    lines.append(
        "Neither a call nor the schedule wakes it: only `cohost wake` does."
        if after.suspended
        else "The next call wakes it, and fails for about ten minutes unless it waits (`cohost invoke --wake`)."
    )
    return lines


def _bill(change: Change, deployment: Deployment) -> str:
    """Return a line about the costs that continue while the endpoint sleeps."""
    if not change.instances_that_stay:
        return "Then only the stored archives and logs bill. `cohost status` shows when the instance is gone."
    kind = change.instance_type or ""
    price = load_prices().find(deployment.region, kind)
    hourly = "an unknown price" if price is None else f"{change.instances_that_stay * price.usd_per_hour:g} USD an hour"
    return (
        f"{change.instances_that_stay} x {kind} still bill at {hourly}, because the endpoint's "
        "ManagedInstanceScaling keeps them; fix: set scaling.min: 0 in the catalog and deploy."
    )


SHOW = "show"


def expire(
    when: Annotated[
        str,
        typer.Argument(
            help="show, never, +4h (4 hours later), 8h (8 hours from now), 2026-12-31, 2026-12-31T18:00+09:00"
        ),
    ] = SHOW,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Show or move the expiry of an endpoint, and restore an expired endpoint.

    Example: cohost expire +4h
    """
    session = boto3.Session()
    lifetime = read_lifetime(session, stack)
    if when != SHOW:
        at = read_when(when, now=dt.datetime.now(dt.UTC), current=lifetime.at)
        move(session, lifetime, at)
        with console.err.status(f"Bringing endpoint {lifetime.deployment.endpoint_name} back") as status:
            restore(session, lifetime, lambda state: status.update(f"Endpoint is {state}"))
        if lifetime.lost_scaling:
            console.print_warning(
                "the endpoint's scaling ended with it and is not back; fix: deploy once without `scaling`, then with it"
            )
        lifetime = read_lifetime(session, stack)
    if as_json:
        console.print_json(_facts(lifetime))
    else:
        console.out.print(Text(_sentence(lifetime, dt.datetime.now(dt.UTC))), soft_wrap=True)


def _facts(lifetime: Lifetime) -> dict[str, object]:
    return {
        "endpoint": lifetime.deployment.endpoint_name,
        "state": lifetime.state,
        "action": lifetime.action,
        "at": None if lifetime.at is None else lifetime.at.isoformat(),
    }


def _sentence(lifetime: Lifetime, now: dt.datetime) -> str:
    name = lifetime.deployment.endpoint_name
    what = "is deleted" if lifetime.action == DELETE_ENDPOINT else "goes down to no instance"
    if lifetime.has_ended:
        return f"{name} has ended ({lifetime.state}); `cohost expire 8h` brings it back for eight hours"
    if lifetime.at is None:
        return f"{name} ({lifetime.state}) keeps running and bills until it is removed: its expiry is off"
    if lifetime.at <= now:
        return f"{name} ({lifetime.state}) {what} now: its end was at {lifetime.at:%Y-%m-%d %H:%M} UTC"
    minutes = int((lifetime.at - now).total_seconds() // 60)
    left = f"{minutes // 60} h {minutes % 60} min"
    return f"{name} ({lifetime.state}) {what} at {lifetime.at:%Y-%m-%d %H:%M} UTC, in {left}"
