"""The subcommand that returns to an earlier, still stored generation of archives: `cohost rollback`."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import boto3
import typer
from rich.live import Live
from rich.text import Text

from cohost.archives.store import ModelStore
from cohost.commands import console
from cohost.commands.deploy import progress_table
from cohost.commands.options import JsonOption, StackOption
from cohost.deploy.rollback import (
    check_topology,
    choose,
    differences,
    present_models,
    template_of,
    update,
)
from cohost.endpoint.stack_outputs import DEFAULT_STACK, read_deployment, read_template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cohost.archives.history import Earlier

_COLUMNS = ("generation", "served until", "models", "what going back changes")


def rollback(
    to: Annotated[
        str | None,
        typer.Option("--to", help="The generation to serve (default: the one before the present one)."),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the stored generations, but change nothing.")] = False,
    stack: StackOption = DEFAULT_STACK,
    as_json: JsonOption = False,
) -> None:
    """Serve an earlier generation of models again, without the checkout that it was deployed from.

    Restores models and their properties, but not instance type, image, scaling and other settings.

    Example: cohost rollback --to 3f2a9c1b7d04
    """
    session = boto3.Session()
    cloudformation = session.client("cloudformation")
    deployment = read_deployment(cloudformation, stack)
    check_topology(deployment)
    s3 = session.client("s3", region_name=deployment.region)
    earlier = ModelStore(s3, deployment.bucket, deployment.prefix).history.earlier()
    template = read_template(cloudformation, stack)
    if only_list:
        _show(deployment.generation, earlier, template, as_json=as_json)
        return
    target = choose(earlier, to)
    changed = template_of(template, deployment, target)
    lines = differences(present_models(template), target.properties["Models"])
    for line in lines:
        console.err.print(Text(line), soft_wrap=True)
    with Live(Text("Requesting the update"), console=console.err) as live:
        update(cloudformation, s3, deployment, changed, show=lambda progress: live.update(progress_table(progress)))
    if as_json:
        console.print_json({"generation": target.generation, "before": deployment.generation, "changed": lines})
        return
    console.out.print(
        Text(
            f"{stack} serves generation {target.generation} again. The next `cdk diff` shows the catalog's models "
            "as changes, and Generation as removed; `cdk deploy` publishes the catalog again."
        ),
        soft_wrap=True,
    )


def _show(live: str, earlier: Sequence[Earlier], template: Mapping[str, Any], *, as_json: bool) -> None:
    now = present_models(template)
    rows: list[dict[str, Any]] = [
        {
            "generation": one.generation,
            "served_until": one.left,
            "models": list(one.properties["Models"]),
            "changes": differences(now, one.properties["Models"]),
        }
        for one in earlier
    ]
    if as_json:
        console.print_json({"live": live, "earlier": rows})
        return
    console.print_table(
        f"{len(rows)} earlier generations stored; live: {live}",
        _COLUMNS,
        [
            (
                row["generation"],
                _minute(row["served_until"]),
                ", ".join(row["models"]),
                "\n".join(row["changes"]) or "nothing",
            )
            for row in rows
        ],
    )


def _minute(moment: str) -> str:
    """Format an ISO 8601 timestamp in UTC to the minute, such as "2026-11-30 08:15 UTC"."""
    return f"{dt.datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC"
