"""`cohost expire`: show or move the time at which an endpoint expires."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import boto3
import typer
from rich.text import Text

from cohost.commands import console
from cohost.commands.options import JsonOption, StackOption
from cohost.deploy.expiry import DELETE_ENDPOINT, move, read_lifetime, read_when, restore
from cohost.endpoint.stack_outputs import DEFAULT_STACK

if TYPE_CHECKING:
    from cohost.deploy.expiry import Lifetime

SHOW = "show"


def expire(
    when: Annotated[
        str, typer.Argument(help="show, never, +4h (later by), 8h (from now), 2026-12-31, 2026-12-31T18:00+09:00")
    ] = SHOW,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Show or move the expiry of an endpoint; one that has expired is restored.

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
        return f"{name} ({lifetime.state}) keeps running and bills until it is removed: its end is switched off"
    if lifetime.at <= now:
        return f"{name} ({lifetime.state}) {what} now: its end was at {lifetime.at:%Y-%m-%d %H:%M} UTC"
    minutes = int((lifetime.at - now).total_seconds() // 60)
    left = f"{minutes // 60} h {minutes % 60} min"
    return f"{name} ({lifetime.state}) {what} at {lifetime.at:%Y-%m-%d %H:%M} UTC, in {left}"
